"""``lemonbus drain`` and ``undrain``."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from gateway.cli import polling
from tests.gateway.cli.conftest import Ends
from tests.gateway.fake_server import FakeServer, Reply

DRAIN, UNDRAIN = ("POST", "/internal/drain"), ("POST", "/internal/undrain")
SHOW = ("GET", "/internal/drain")


def state(running: int, queued: int = 0, *, drained: bool = True) -> Reply:
    return Reply({"drained": drained, "running": running, "queued": queued})


def in_turn(*replies: Reply) -> Callable[[Any], Reply]:
    left = list(replies)
    return lambda _body: left.pop(0) if len(left) > 1 else left[0]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "INTERVAL_S", 0.001)


def test_it_says_what_still_runs(server: FakeServer, lemonbus: Ends) -> None:
    server.replies[DRAIN] = state(3, 2)
    assert lemonbus("drain") == (0, "The server takes no new requests; 3 run, 2 wait.\n", "")
    server.replies[UNDRAIN] = state(3, 2, drained=False)
    assert lemonbus("undrain") == (0, "The server takes new requests.\n", "")


def test_it_waits_until_nothing_runs_at_two_polls_in_a_row(server: FakeServer, lemonbus: Ends) -> None:
    server.replies[DRAIN] = state(2)
    server.replies[SHOW] = in_turn(state(1), state(0, 1), state(0), state(1), state(0), state(0))
    code, out, _ = lemonbus("drain", "--wait", "--json")
    assert (code, json.loads(out)) == (0, {"drained": True, "running": 0, "queued": 0})
    assert len(server.asked) == 7


def test_it_gives_up_after_the_timeout_and_the_server_stays_drained(server: FakeServer, lemonbus: Ends) -> None:
    server.replies[DRAIN] = server.replies[SHOW] = state(2, 1)
    code, out, err = lemonbus("drain", "--wait", "--timeout", "0.05")
    assert (code, out) == (1, "")
    assert "after 0.05 s, 2 still run, 1 wait; the server stays drained" in err
    assert UNDRAIN not in {each[:2] for each in server.asked}


def test_an_undrain_meanwhile_ends_the_wait(server: FakeServer, lemonbus: Ends) -> None:
    server.replies[DRAIN] = state(2)
    server.replies[SHOW] = state(5, drained=False)
    code, _, err = lemonbus("drain", "--wait")
    assert code == 1
    assert "undrained meanwhile" in err


def test_an_interrupted_wait_says_that_the_server_stays_drained(
    server: FakeServer, lemonbus: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "time", Mock(sleep=Mock(side_effect=KeyboardInterrupt)))
    server.replies[DRAIN] = state(2)
    code, out, err = lemonbus("drain", "--wait")
    assert (code, out) == (130, "")
    assert "the server stays drained until `lemonbus undrain`" in err
    assert UNDRAIN not in {each[:2] for each in server.asked}


def test_it_goes_on_when_the_gateway_that_it_asked_dies(server: FakeServer, lemonbus: Ends) -> None:
    dead, replaced = Reply(pieces=[], cut=True), Reply({"error": {"message": "another release"}}, 503)
    server.replies[DRAIN] = state(1)
    server.replies[SHOW] = in_turn(state(0), dead, replaced, state(0), state(0))
    assert lemonbus("drain", "--wait")[0] == 0
    assert len(server.asked) == 6, "two polls in a row, and no failed one between them"


def test_it_gives_up_when_the_server_does_not_answer_again(server: FakeServer, lemonbus: Ends) -> None:
    server.replies[DRAIN] = state(1)
    server.replies[SHOW] = Reply({"error": {"message": "it is lost"}}, 503)
    code, _, err = lemonbus("drain", "--wait")
    assert code == 1
    assert "it is lost" in err


def test_a_timeout_needs_a_wait(server: FakeServer, lemonbus: Ends) -> None:
    assert lemonbus("drain", "--timeout", "3")[0] == 2
    assert not server.asked
