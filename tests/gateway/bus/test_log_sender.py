"""When lines of requests are written, by gevent's own clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gevent
import pytest

from gateway.bus.log_sender import RequestLogBuffer
from protocol.runtime import logs

DEADLINE = 5.0


@pytest.fixture
def gatherer(records: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> Iterator[RequestLogBuffer]:
    logs.configure("gateway", "info", "json")
    monkeypatch.setattr("gateway.bus.log_sender.BATCH_WINDOW_S", 0.2)
    gevent.get_hub().loop.update_now()  # it may not have run since another test
    one = RequestLogBuffer()
    yield one
    one.close()
    assert records


def say(*events: str) -> None:
    for event in events:
        logs.log_batched("info", event, {})


def until(records: list[dict[str, Any]], count: int) -> list[str]:
    with gevent.Timeout(DEADLINE):
        while len(records) < count:
            gevent.sleep(0.001)
    return [str(record["event"]) for record in records]


@pytest.mark.usefixtures("gatherer")
def test_after_a_quiet_moment_a_line_is_written_at_once_and_the_next_wait(records: list[dict[str, Any]]) -> None:
    say("a")
    assert until(records, 1) == ["a"]
    say("b", "c")
    assert len(records) == 1
    assert until(records, 3) == ["a", "b", "c"]
    say("d")
    assert until(records, 4)[-1] == "d"


def test_nothing_is_left_behind(gatherer: RequestLogBuffer, records: list[dict[str, Any]]) -> None:
    say("a", "b")
    assert len(records) == 1
    gatherer.close()
    assert until(records, 2) == ["a", "b"]
    say("c")
    assert len(records) == 3
    gatherer.close()
