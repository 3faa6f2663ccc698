"""``lemonbus upgrade``: the answer of the release that serves in the end, even if the first answer comes from processes of another release."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from gateway.cli.commands import upgrade
from tests.gateway.cli.conftest import Ends
from tests.gateway.fake_server import FakeServer, Reply

PATH = "/internal/upgrade"
TAKING_OVER = Reply({"status": "taking_over", "release": None, "pid": None, "former_release": "1.0"}, 202)
SERVES = Reply({"status": "success", "release": "2.0", "pid": 7, "former_release": None})
REPLACED = Reply({"error": {"message": "repeat the request", "code": "draining"}}, 503)
BAD_GATEWAY = Reply({"error": "no live upstreams"}, 502)
FAILED = Reply({"error": {"message": "not upgraded, release 1.0 goes on", "code": "internal_error"}}, 500)


def in_turn(*replies: Reply) -> Callable[[Any], Reply]:
    left = list(replies)
    return lambda _body: left.pop(0) if len(left) > 1 else left[0]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrade, "_INTERVAL_S", 0.0)


def test_the_first_answer_may_be_the_last(server: FakeServer, lemonbus: Ends) -> None:
    server.replies["POST", PATH] = Reply({"status": "success", "release": "2.0", "pid": 7, "former_release": "1.0"})
    assert lemonbus("upgrade") == (0, "Release 2.0 serves. The former release was 1.0.\n", "")
    assert len(server.asked) == 1


def test_the_same_release_is_said_to_be_the_same(server: FakeServer, lemonbus: Ends) -> None:
    server.replies["POST", PATH] = Reply({"status": "success", "release": "2.0", "pid": 7, "former_release": "2.0"})
    code, out, _ = lemonbus("upgrade")
    assert code == 0
    assert "with the files that are installed now. The former release had the same version." in out


def test_a_release_that_cannot_start_is_a_failure(server: FakeServer, lemonbus: Ends) -> None:
    server.replies["POST", PATH] = FAILED
    code, out, err = lemonbus("upgrade")
    assert (code, out) == (1, "")
    assert "release 1.0 goes on" in err


def test_it_waits_until_the_new_release_answers(server: FakeServer, lemonbus: Ends) -> None:
    server.replies["POST", PATH] = TAKING_OVER
    server.replies["GET", PATH] = in_turn(REPLACED, TAKING_OVER, Reply(pieces=[], cut=True), BAD_GATEWAY, SERVES)
    code, out, err = lemonbus("upgrade", "--json")
    assert (code, json.loads(out)["release"], json.loads(out)["former_release"]) == (0, "2.0", "1.0")
    assert "requests that waited were answered 503" in err
    assert len(server.asked) == 6


def test_the_release_before_may_answer_that_it_goes_on(server: FakeServer, lemonbus: Ends) -> None:
    server.replies["POST", PATH] = TAKING_OVER
    server.replies["GET", PATH] = in_turn(REPLACED, FAILED)
    code, out, err = lemonbus("upgrade")
    assert (code, out) == (1, "")
    assert "release 1.0 goes on" in err


def test_a_release_that_never_answers_is_a_failure(
    server: FakeServer, lemonbus: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrade, "_TIMEOUT_S", 0.0)
    server.replies["POST", PATH] = TAKING_OVER
    server.replies["GET", PATH] = REPLACED
    code, out, err = lemonbus("upgrade")
    assert (code, out) == (1, "")
    assert "has not answered" in err
    assert "repeat the request" in err
