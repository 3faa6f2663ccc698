"""``lemonbus options``: shows, saves and removes the load options of a model."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.shell_completion import BashComplete

from gateway.cli.main import cli
from tests.gateway.cli.conftest import Ends
from tests.gateway.fake_server import FakeServer, Reply

PATH = "/v1/models/owner%2FA/options"
DEFAULTS = {"model_name": "owner/A", "ctx_size": 4096, "llamacpp_args": "", "threads": None}
ANSWER = {
    "model_name": "owner/A",
    "recipe": "llamacpp",
    "saved": {"ctx_size": -1},
    "effective": {**DEFAULTS, "ctx_size": -1},
    "defaults": DEFAULTS,
    "resolved_ctx_size": -1,
    "loaded_options": {"ctx_size": 512, "llamacpp_args": ""},
    "reload_needed": True,
}


@pytest.fixture
def server(server: FakeServer) -> FakeServer:
    for method in ("GET", "POST", "DELETE"):
        server.replies[method, PATH] = Reply(ANSWER)
    return server


@pytest.mark.parametrize("words", [[], ["show"]])
def test_they_are_shown(words: list[str], server: FakeServer, lemonbus: Ends) -> None:
    code, out, err = lemonbus("options", "owner/A", *words)
    assert (code, err) == (0, "")
    head, *lines = out.splitlines()
    assert head.split() == ["OPTION", "SAVED", "NEXT", "LOAD", "WITHOUT", "SAVED"]
    assert [line.split() for line in lines[:3]] == [
        ["ctx_size", "auto", "auto", "4096"],
        ["llamacpp_args", "-", '""', '""'],
        ["threads", "-", "-", "-"],
    ]
    assert lines[-1] == "It is loaded with other options (ctx_size 512), which it keeps until it is unloaded."


@pytest.mark.parametrize(
    ("words", "method", "body"),
    [
        (["set", "ctx-size=8192", "llamacpp_args=--no-mmap"], "POST", {"ctx_size": 8192, "llamacpp_args": "--no-mmap"}),
        (["set", "ctx_size=auto"], "POST", {"ctx_size": "auto"}),
        (["set", "sd-cpp_backend=vulkan"], "POST", {"sd-cpp_backend": "vulkan"}),
        (["reset", "ctx-size", "threads"], "POST", {"ctx_size": None, "threads": None}),
        (["reset", "sd-cpp_backend"], "POST", {"sd-cpp_backend": None}),
        (["reset"], "DELETE", None),
    ],
)
def test_they_are_saved_and_removed(
    words: list[str], method: str, body: Any, server: FakeServer, lemonbus: Ends
) -> None:
    code, out, _ = lemonbus("options", "owner/A", *words, "--json")
    assert (code, json.loads(out)) == (0, ANSWER)
    asked = server.asked[-1]
    assert asked[:2] == (method, PATH)
    if body is not None:
        assert server.last() == body


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["set"], "Give each option as KEY=VALUE"),
        (["set", "ctx_size"], "expected KEY=VALUE"),
        (["ctx_size=1"], "not one of"),
        (["show", "ctx_size=1"], "did you mean: set ctx_size=1"),
        (["set", "model_id=B"], "model_id cannot be given as an option"),
    ],
)
def test_wrong_words_end_with_2(words: list[str], why: str, server: FakeServer, lemonbus: Ends) -> None:
    code, _, err = lemonbus("options", "A", *words)
    assert (code, why in err, server.asked) == (2, True, [])


def test_their_names_are_completed(server: FakeServer) -> None:
    completer = BashComplete(cli, {}, "lemonbus", "_LEMONBUS_COMPLETE")

    def offered(words: str, begun: str) -> list[str]:
        return [each.value for each in completer.get_completions(["--url", server.url, *words.split()], begun)]

    assert offered("options owner/A", "re") == ["reset"]
    assert offered("options owner/A set", "") == ["ctx_size=", "llamacpp_args=", "threads="]
    assert offered("options owner/A reset", "t") == ["threads"]
    server.replies.clear()
    assert offered("options owner/A set", "") == []
