"""``lemonbus show``: the configuration of one model."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.cli.main import main
from tests.gateway.fake_server import FakeServer, Reply

ANSWER: dict[str, Any] = {
    "id": "Qwen",
    "names": ["small"],
    "recipe": "llamacpp",
    "type": "llm",
    "downloaded": True,
    "origin": "files",
    "state": "ready",
    "options": [
        {"name": "ctx_size", "value": 512, "origin": "models.Qwen"},
        {"name": "threads", "value": 0, "origin": "settings"},
    ],
    "settings": [{"name": "ttl", "value": 5.0, "origin": "defaults.llamacpp"}],
    "groups": [],
    "loaded_options": {"ctx_size": 1024, "threads": 0},
    "known_options": [{"name": "ctx_size", "kind": "int", "help": "tokens", "automatic": True}],
    "files": [{"path": "/models/qwen.gguf", "size": 1_500_000_000}],
}
PATH = "/internal/configuration?model=a/b%3AQ4"


@pytest.fixture
def server(server: FakeServer) -> FakeServer:
    server.replies["GET", PATH] = Reply(ANSWER)
    return server


def test_values_and_their_origins(server: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "a/b:Q4"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["model", "Qwen"]
    assert ["names", "small"] in lines
    assert ["ctx_size", "512", "(loaded", "with", "1024)", "models.Qwen"] in lines
    assert ["threads", "0", "settings"] in lines
    assert ["ttl", "5.0", "defaults.llamacpp"] in lines
    assert ["1.5", "GB", "/models/qwen.gguf"] in lines
    assert server.asked[-1][:2] == ("GET", PATH)


def test_the_parts_of_a_model(server: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    files = [*ANSWER["files"], {"path": "/models/ae.gguf", "size": 2_000_000, "part": "vae"}]
    server.replies["GET", PATH] = Reply({**ANSWER, "files": files})
    assert main(["show", "a/b:Q4"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[-3:] == [
        ["SIZE", "PART", "FILE"],
        ["1.5", "GB", "-", "/models/qwen.gguf"],
        ["2.0", "MB", "vae", "/models/ae.gguf"],
    ]


@pytest.mark.parametrize(("origin", "shown"), [("program", "a program"), ("server", "another server")])
def test_what_has_no_files_is_not_called_downloaded(
    server: FakeServer, capsys: pytest.CaptureFixture[str], origin: str, shown: str
) -> None:
    server.replies["GET", PATH] = Reply({**ANSWER, "origin": origin})
    assert main(["show", "a/b:Q4"]) == 0
    out = capsys.readouterr().out
    assert f"origin      {shown} of the configuration" in out
    assert "downloaded" not in out


@pytest.mark.usefixtures("server")
def test_the_answer_for_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "a/b:Q4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == ANSWER
