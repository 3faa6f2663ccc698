"""``params``: the route under all prefixes, and the verb of the terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.app import PREFIXES
from gateway.cli.main import main
from protocol import sampling
from protocol.failures import Code, Failure
from protocol.sampling import in_force
from tests.gateway.answering import Answering
from tests.gateway.webserver import Reply, WebServer, serving

SET = {"temperature": 0.8, "top_p": 0.95, "max_length": 1000}


@pytest.fixture
def ask(tmp_path: Path) -> Answering:
    return Answering(tmp_path)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_the_documents_example(ask: Answering, prefix: str) -> None:
    ask.reports[sampling.SetParams] = sampling.Params(in_force(SET), list(SET))
    assert ask("POST", f"{prefix}/params", SET).json == {
        "status": "success",
        "message": "Generation parameters set successfully",
        "params": {
            "temperature": 0.8,
            "top_p": 0.95,
            "top_k": 50,
            "min_length": 0,
            "max_length": 1000,
            "do_sample": True,
        },
        "set": ["temperature", "top_p", "max_length"],
    }
    assert [call.values for call in ask.asked(sampling.SetParams)] == [SET]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_get_shows_what_is_in_force(ask: Answering, prefix: str) -> None:
    ask.reports[sampling.GetParams] = sampling.Params(
        in_force({"min_length": 2}), ["min_length"], {"llamacpp": ["min_length"]}
    )
    found = ask("GET", f"{prefix}/params").json
    assert (found["params"], found["set"]) == (in_force({"min_length": 2}), ["min_length"])
    assert found["ignored"] == {"llamacpp": ["min_length"]}
    assert ask("HEAD", f"{prefix}/params").status_code == 200


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": 3}, "temperature"),
        ({"top_k": 1.5}, "top_k"),
        ({"do_sample": 1}, "do_sample"),
        ({"top_k": 5, "heat": 1}, "heat"),
        (b"[]", None),
        (b"{", None),
    ],
)
def test_what_is_wrong_is_named_and_not_sent(ask: Answering, body: Any, param: str | None) -> None:
    result = ask("POST", "/v1/params", body)
    assert (result.status_code, result.json["error"]["type"]) == (400, "invalid_request")
    assert result.json["status"] == "error"
    assert result.json["error"]["param"] == param
    assert not ask.line.sent


def test_null_takes_back_and_an_empty_body_changes_nothing(ask: Answering) -> None:
    ask.reports[sampling.SetParams] = sampling.Params(in_force({}), [])
    ask("POST", "/v1/params", {"top_k": None})
    ask("POST", "/v1/params")
    assert [call.values for call in ask.asked(sampling.SetParams)] == [{"top_k": None}, {}]


def test_what_the_supervisor_refuses_reaches_the_client(ask: Answering) -> None:
    ask.reports[sampling.SetParams] = Failure(Code.INVALID_REQUEST, "too long", param="min_length")
    assert ask("POST", "/v1/params", {"min_length": 5000}).json["error"]["param"] == "min_length"


def test_a_page_from_elsewhere_may_not_set_them(ask: Answering) -> None:
    assert ask("POST", "/v1/params", SET, headers={"Origin": "http://evil.example"}).status_code == 403
    assert not ask.line.sent


# the terminal


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    with serving() as standin:
        monkeypatch.setenv("LEMONBUS_URL", standin.url)
        answer = {"params": in_force(SET), "set": list(SET), "ignored": {"llamacpp": ["min_length"]}}
        standin.replies["GET", "/v1/params"] = Reply(answer)
        standin.replies["POST", "/v1/params"] = Reply(answer)
        yield standin


@pytest.mark.parametrize("words", [[], ["show"]])
def test_params_shows_them(words: list[str], server: WebServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["params", *words]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0][:3] == ["PARAMETER", "VALUE", "SET"]
    assert ["temperature", "0.8", "yes"] in [line[:3] for line in lines]
    assert ["do_sample", "true", "-"] in [line[:3] for line in lines]
    assert " ".join(lines[-1]) == "llamacpp has no use for min_length."


@pytest.mark.parametrize(
    ("words", "body"),
    [
        (["set", "temperature=0.2", "top-k=20"], {"temperature": 0.2, "top_k": 20}),
        (["set", "do_sample=false", "top_p=null"], {"do_sample": False, "top_p": None}),
        (["set", "temperature=hot"], {"temperature": "hot"}),
        (["reset", "temperature"], {"temperature": None}),
        (["reset"], dict.fromkeys(in_force({}))),
    ],
)
def test_params_are_set_and_taken_back(words: list[str], body: dict[str, Any], server: WebServer) -> None:
    assert main(["params", *words]) == 0
    method, path, sent = server.asked[-1][:3]
    assert (method, path, json.loads(sent) if isinstance(sent, str | bytes) else sent) == ("POST", "/v1/params", body)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["set"], "Name what to set"),
        (["set", "temperature"], "expected KEY=VALUE"),
        (["temperature=1"], "not one of"),
        (["show", "temperature=1"], "did you mean: lemonbus params set temperature=1"),
    ],
)
def test_wrong_words_end_with_2(
    words: list[str], said: str, server: WebServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["params", *words]) == 2
    assert said in capsys.readouterr().err
    assert not server.asked


def test_json_is_the_servers_answer(server: WebServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["params", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["set"] == list(SET)
