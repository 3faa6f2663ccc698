"""``--json``: which commands have it, and the form of errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest

from gateway.cli.main import cli
from tests.gateway.cli.conftest import Ends
from tests.gateway.fake_server import FakeServer, Reply

WITHOUT_JSON: Final = {
    "completion": "its output is a shell's script",
    "serve": "it becomes the server, whose log is JSON",
    "gateway": "it becomes the host of gateways, whose log is JSON",
    "import": "it only has subcommands",
    "keys": "it only has subcommands",
    "nodes token": "its output is one word",
}
NOT_FOUND = {"message": "there is no model 'A'", "code": "model_not_found", "request_id": "r", "param": "model"}


def _commands(group: click.Group, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield prefix + name, command
        if isinstance(command, click.Group):
            yield from _commands(command, f"{prefix}{name} ")


def test_every_command_has_it_or_a_reason_not_to() -> None:
    without = {
        name for name, command in _commands(cli) if not any("--json" in option.opts for option in command.params)
    }
    assert without == set(WITHOUT_JSON)


@pytest.mark.parametrize("name", ["load", "delete"])
def test_an_error_is_one_line_of_json_with_the_fields_of_the_server(
    name: str, server: FakeServer, lemonbus: Ends
) -> None:
    server.replies["POST", f"/v1/{name}"] = Reply({"status": "error", "error": NOT_FOUND}, 404)
    code, out, err = lemonbus(name, "A", "--json")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert json.loads(err) == {"error": NOT_FOUND, "status": 404, "exit_code": 1}


@pytest.mark.parametrize("words", ["--json --url {url}", "--url {url} --json"])
def test_an_error_without_an_answer_has_its_exit_code(words: str, lemonbus: Ends) -> None:
    code, out, err = lemonbus("status", *words.format(url="localhost:1").split())
    message = "'localhost:1' is not the address of a server; expected http://HOST:PORT"
    assert (code, out) == (2, "")
    assert json.loads(err) == {"error": {"message": message}, "exit_code": 2}


def test_an_error_in_a_stream_is_the_same(server: FakeServer, lemonbus: Ends) -> None:
    error = {"message": "no such repository", "code": "checkpoint_not_found"}
    server.replies["POST", "/v1/pull"] = Reply(pieces=[f"event: error\ndata: {json.dumps({'error': error})}\n\n"])
    code, _, err = lemonbus("pull", "A", "--json")
    assert code == 1
    assert json.loads(err) == {"error": error, "exit_code": 1}


def test_the_answer_of_each_model_is_one_line_also_if_another_one_is_refused(
    server: FakeServer, lemonbus: Ends
) -> None:
    server.replies["POST", "/v1/unload"] = Reply({"error": NOT_FOUND}, 404)
    code, out, err = lemonbus("unload", "A", "B", "--json")
    assert (code, out) == (1, "")
    assert [json.loads(line)["error"]["code"] for line in err.splitlines()] == ["model_not_found"] * 2
    answer = {"status": "success", "message": "Unloaded model: A", "model_name": "A", "unloaded": ["A"]}
    server.replies["POST", "/v1/unload"] = Reply(answer)
    code, out, err = lemonbus("stop", "A", "B", "--json")
    assert (code, [json.loads(line) for line in out.splitlines()], err) == (0, [answer, answer], "")


def test_wrong_usage_is_text_for_who_writes_the_script(lemonbus: Ends) -> None:
    code, out, err = lemonbus("list", "--json", "--nope")
    assert (code, out) == (2, "")
    assert err.startswith("Usage: ")


def test_say_tells_about_the_file_it_wrote(server: FakeServer, lemonbus: Ends, tmp_path: Path) -> None:
    server.replies["POST", "/v1/audio/speech"] = Reply(pieces=["abc", "def"])
    file = tmp_path / "a.wav"
    code, out, _ = lemonbus("say", "A", "hello", "-o", str(file), "--json")
    assert (code, json.loads(out)) == (0, {"model": "A", "file": str(file), "bytes": 6, "format": "wav"})
    code, _, err = lemonbus("say", "A", "hello", "--json")
    assert (code, "--json needs -o" in err) == (2, True)
