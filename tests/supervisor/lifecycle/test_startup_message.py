"""The command line to try: one that the first ready model can answer, and the one in the README."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from supervisor.lifecycle.preload import example_command
from tests.conftest import StartServer
from tests.support.waiting import wait_for

URL = "http://127.0.0.1:13305"


@pytest.mark.parametrize(
    ("kind", "route", "field"),
    [
        ("llm", "/v1/chat/completions", "messages"),
        ("embedding", "/v1/embeddings", "input"),
        ("reranking", "/v1/reranking", "documents"),
        ("image", "/v1/images/generations", "prompt"),
        ("tts", "/v1/audio/speech", "input"),
    ],
)
@pytest.mark.parametrize("model", ["m", "extra.it's"])
def test_the_command_fits_the_models_type(kind: str, route: str, field: str, model: str) -> None:
    words = shlex.split(example_command(URL, model, kind, with_key=False))
    assert URL + route in words
    body = json.loads(words[words.index("-d") + 1])
    assert body["model"] == model
    assert field in body
    assert ("-N" in words) is bool(body.get("stream")) is (kind == "llm")


def test_the_command_for_recordings_and_for_types_without_a_route() -> None:
    assert example_command(URL, "ears", "audio", with_key=False).endswith(" -F file=@recording.wav -F model=ears")
    assert example_command(URL, "m", "other", with_key=False) == f"curl {URL}/v1/models"
    assert "$LEMONBUS_API_KEY" in example_command(URL, "m", "other", with_key=True)


def test_the_readme_shows_the_command() -> None:
    text = (Path(__file__).resolve().parents[3] / "README.md").read_text()
    shown = re.search(r"^    curl -N .*?}'$", text, re.MULTILINE | re.DOTALL)
    assert shown
    command = shlex.split(example_command(URL, "SmolLM2-135M-Instruct-GGUF", "llm", with_key=False))
    readme = shlex.split(shown[0])
    assert readme[:-1] == command[:-1]
    assert json.loads(readme[-1]) == json.loads(command[-1])


def test_the_command_is_printed_once_and_unknown_models_are_reported(start_server: StartServer) -> None:
    server = start_server(
        "tiny-chat", "tiny-embed", load=["nope", "extra.tiny-embed", "extra.tiny-chat"], pin=["not.known"]
    )

    def command(event: str) -> list[dict[str, object]]:
        return [line for line in server.lines if line["event"] == event]

    wait_for(lambda: len(command("loaded at start")) == 2, "both are loaded")
    first, second = command("loaded at start")
    assert "try" not in second
    fits = "/v1/embeddings" if first["model"] == "extra.tiny-embed" else "/v1/chat/completions"
    words = shlex.split(str(first["try"]))
    assert fits in words[words.index("-H") - 1]
    assert server.client.post(fits, words[-1].encode()).status == 200
    assert [line["model"] for line in command("cannot load at start")] == ["nope"]
    reported = [(line["level"], line["reason"]) for line in command("configured model is not known")]
    assert reported == [("warning", "pin: Model 'not.known' not found"), ("warning", "load: Model 'nope' not found")]
    assert server.state()["problems"] == [problem for _, problem in reported]
