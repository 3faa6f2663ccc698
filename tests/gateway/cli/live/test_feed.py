"""How the overview is followed: patches, lost connections, refusals."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest

from gateway.cli.api_client import ApiClient
from gateway.cli.exit_codes import FORBIDDEN, UNREACHABLE, CommandError
from gateway.cli.live.feed import State, follow_states
from tests.gateway.cli.live.overviews import NOW, fields
from tests.gateway.cli.live.streaming import OverviewStream, streams
from tests.gateway.fake_server import FakeServer, Reply


class NoPause(threading.Event):
    """Does not wait between attempts, and counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses.append(timeout)
        return False


def states(server: FakeServer, count: int, retry: threading.Event | None = None) -> list[State]:
    return list(itertools.islice(follow_states(ApiClient(server.url), retry or NoPause()), count))


def test_each_message_changes_what_is_known(server: FakeServer) -> None:
    stream = OverviewStream()
    stream.send("history", {"step_s": 10, "samples": []})
    stream.send("patch", {"time": NOW + 1, "models": {"idle": None, "busy": {"running": 2}}})
    stream.send("sample", {"at": NOW})
    stream.send("patch", {"time": NOW + 2})
    with streams(server, stream):
        first, second, third = states(server, 3)
    assert first == State(fields())
    expected: Any = fields(time=NOW + 1)
    del expected["models"]["idle"]
    expected["models"]["busy"]["running"] = 2
    assert second.fields == expected
    assert third.fields == {**expected, "time": NOW + 2}
    assert server.asked[0][1] == "/internal/overview/stream"


def test_a_restart_is_noticed_and_the_new_server_followed(server: FakeServer) -> None:
    first, second = OverviewStream(), OverviewStream(running=0)
    first.send("error", {"error": "the server is stopping", "code": "draining", "request_id": "r"})
    retry = NoPause()
    away = Reply({"error": {"message": "starting", "code": "overloaded"}}, 503)
    broken = OverviewStream()
    broken.end()
    with streams(server, first, away, away, broken, second):
        found = states(server, 7, retry)
    assert [state.problem for state in found] == [
        "",
        "the server is stopping (draining, r)",
        "starting (overloaded)",
        "starting (overloaded)",
        "",
        "the connection to the server is lost",
        "",
    ]
    assert all(state.fields for state in found), "what was known last stays"
    assert found[-1].fields == fields(running=0)
    assert retry.pauses == [0.25, 0.5, 1.0, 0.25]


@pytest.mark.parametrize(("status", "exit_code"), [(401, FORBIDDEN), (403, FORBIDDEN), (404, 1)])
def test_a_refusal_ends_it(server: FakeServer, status: int, exit_code: int) -> None:
    stream = OverviewStream()
    stream.end()
    refusal = Reply({"error": {"message": "no"}}, status)
    with streams(server, stream, refusal), pytest.raises(CommandError) as raised:
        states(server, 9)
    assert raised.value.exit_code == exit_code


def test_a_server_that_is_not_there_is_not_waited_for() -> None:
    with pytest.raises(CommandError) as raised:
        next(follow_states(ApiClient("http://127.0.0.1:1"), NoPause()))
    assert raised.value.exit_code == UNREACHABLE
