"""``lemonbus run``: one answer, a broken answer, and a conversation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.gateway.cli.canned_responses import CHAT, DONE, chunk, end
from tests.gateway.cli.conftest import Ends
from tests.gateway.cli.terminal_process import TerminalProcess
from tests.gateway.fake_server import FakeServer, Reply


def test_run_prints_the_answer(server: FakeServer, lemonbus: Ends) -> None:
    server.replies[CHAT] = Reply(
        pieces=[": ping\n\n", chunk(role="assistant"), chunk(reasoning_content="hm"), chunk(content="Grü"),
                chunk(content="ße")[:20], chunk(content="ße")[20:], end(), DONE]
    )  # fmt: skip
    words = ["run", "A", "hi", "--system", "be short", "--max-tokens", "9", "--temperature", "0"]
    assert lemonbus(*words) == (0, "Grüße\n", "")
    request = server.last()
    assert request["messages"] == [{"role": "system", "content": "be short"}, {"role": "user", "content": "hi"}]
    assert (request["model"], request["max_tokens"], request["temperature"]) == ("A", 9, 0)


def test_run_reads_a_pipe_and_prints_json(server: FakeServer, lemonbus: Ends) -> None:
    server.replies[CHAT] = Reply(pieces=[chunk(content="yes"), end("length"), DONE])
    code, out, _ = lemonbus("run", "A", "-", "--json", stdin="from a pipe")
    assert code == 0
    assert json.loads(out) == {
        "model": "A",
        "content": "yes",
        "finish_reason": "length",
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }
    assert server.last()["messages"] == [{"role": "user", "content": "from a pipe"}]
    code, out, err = lemonbus("run", "A", stdin="from a pipe")
    assert (code, out) == (0, "yes\n")
    assert "cut" in err


@pytest.mark.parametrize(
    ("pieces", "cut", "code", "expected"),
    [
        ([chunk(content="so"), 'data: {"error":{"message":"gone","code":"backend_died","request_id":"r"}}\n\n'],
         False, 1, "gone (backend_died, r)"),
        ([chunk(content="so"), end()], False, 1, "without its end mark"),
        ([chunk(content="so")], True, 1, "broke off"),
    ],
)  # fmt: skip
def test_a_broken_answer_is_an_error(
    pieces: list[str], cut: bool, code: int, expected: str, server: FakeServer, lemonbus: Ends
) -> None:
    server.replies[CHAT] = Reply(pieces=pieces, cut=cut)
    ended, out, err = lemonbus("run", "A", "hi")
    assert (ended, out) == (code, "so\n")
    assert expected in err


def test_a_conversation_keeps_messages_survives_errors_and_can_be_cleared(server: FakeServer) -> None:
    def reply(request: Any) -> Reply:
        if request["messages"][-1]["content"] == "fail":
            return Reply({"error": {"message": "busy", "code": "overloaded"}}, 503)
        return Reply(pieces=[chunk(content=f"got {len(request['messages'])}\x1b[2J"), end(), DONE])

    server.replies[CHAT] = reply
    with TerminalProcess("run", "A", "--system", "s") as terminal:
        terminal.until(">>> ")
        for typed, shown in (("one", "got 2[2J"), ("fail", "busy (overloaded)"), ("two", "got 4[2J")):
            terminal.type(typed + "\n")
            terminal.until(shown)
            terminal.until(">>> ")
        terminal.type("/clear\n")
        terminal.until(">>> ")
        terminal.type("three\n")
        terminal.until("got 2[2J")
        terminal.until(">>> ")
        terminal.type("\x04")
        assert terminal.ends() == 0
    assert server.last()["messages"] == [{"role": "system", "content": "s"}, {"role": "user", "content": "three"}]
