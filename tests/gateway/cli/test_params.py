"""``lemonbus params``: shows, sets and resets values."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.cli.main import main
from protocol.models.sampling import effective_params
from tests.gateway.fake_server import FakeServer, Reply

SET = {"temperature": 0.8, "top_p": 0.95, "max_length": 1000}


@pytest.fixture
def server(server: FakeServer) -> FakeServer:
    answer = {"status": "success", "message": "", "params": effective_params(SET), "set": list(SET)}
    answer["ignored"] = {"llamacpp": ["min_length"]}
    server.replies["GET", "/v1/params"] = Reply(answer)
    server.replies["POST", "/v1/params"] = Reply(answer)
    return server


@pytest.mark.parametrize("words", [[], ["show"]])
def test_params_shows_them(words: list[str], server: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["params", *words]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0][:3] == ["PARAMETER", "VALUE", "SET"]
    assert ["temperature", "0.8", "yes"] in [line[:3] for line in lines]
    assert ["do_sample", "true", "-"] in [line[:3] for line in lines]
    assert " ".join(lines[-1]) == "llamacpp ignores min_length."


@pytest.mark.parametrize(
    ("words", "body"),
    [
        (["set", "temperature=0.2", "top-k=20"], {"temperature": 0.2, "top_k": 20}),
        (["set", "do_sample=false", "top_p=null"], {"do_sample": False, "top_p": None}),
        (["set", "temperature=hot"], {"temperature": "hot"}),
        (["reset", "temperature"], {"temperature": None}),
        (["reset"], dict.fromkeys(effective_params({}))),
    ],
)
def test_params_are_set_and_reset(words: list[str], body: dict[str, Any], server: FakeServer) -> None:
    assert main(["params", *words]) == 0
    method, path, sent = server.asked[-1][:3]
    assert (method, path, json.loads(sent) if isinstance(sent, str | bytes) else sent) == ("POST", "/v1/params", body)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["set"], "Give each setting as KEY=VALUE"),
        (["set", "temperature"], "expected KEY=VALUE"),
        (["temperature=1"], "not one of"),
        (["show", "temperature=1"], "did you mean: lemonbus params set temperature=1"),
    ],
)
def test_wrong_words_end_with_2(
    words: list[str], expected: str, server: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["params", *words]) == 2
    assert expected in capsys.readouterr().err
    assert not server.asked


def test_json_is_the_servers_answer(server: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["params", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["set"] == list(SET)
