"""When the events of a download's progress are written, and what ends them."""

from __future__ import annotations

import json
from typing import Any

from gateway.api.common.progress_events import PING, PROGRESS_INTERVAL_S, ProgressStream
from gateway.api.lemonade.model_files import PullEventWriter
from protocol.failures import Code, Failure
from protocol.messages import model_files
from protocol.messages.calls import CallResult
from protocol.wire import envelope
from tests.gateway.api.supervisor_reports import progress


class Script:
    """A call whose messages arrive at given times."""

    def __init__(self, *happenings: tuple[float, Any]) -> None:
        self.now = 0.0
        self.report = envelope.pack_payload(model_files.Pulled("m", 1))
        self.closed = 0
        self._left = list(happenings)

    def clock(self) -> float:
        return self.now

    def next(self, seconds: float) -> Any:
        when, what = self._left[0]
        if when > self.now + seconds:
            self.now += seconds
            return None
        self._left.pop(0)
        self.now = max(self.now, when)
        if isinstance(what, Failure):
            raise what.raised()
        return what

    def close(self) -> None:
        self.closed += 1


def played(*happenings: tuple[float, Any], silence: float = 5.0) -> list[tuple[float, bytes]]:
    follower = Script(*happenings)
    stream = ProgressStream(follower, follower.next(silence), PullEventWriter(), "r1", silence, follower.clock)  # type: ignore[arg-type]
    return [(follower.now, piece) for piece in stream]


def test_progress_events_are_at_most_ten_a_second_and_never_stale() -> None:
    reported = played(*[(step / 100, progress(step)) for step in range(1, 301)], (3.005, CallResult(1)))
    assert reported[-1][1].startswith(b"event: complete")
    seconds = [when for when, piece in reported]
    for start in seconds:
        assert sum(start <= when < start + 1 for when in seconds) <= 10
    assert b'"percent":100' in reported[-1][1]
    assert json.loads(reported[-2][1].partition(b"data: ")[2])["bytes_downloaded"] == 300


def test_a_delayed_progress_event_is_sent_after_the_interval() -> None:
    reported = played((0.0, progress(1)), (0.01, progress(2)), (9.0, CallResult(1)))
    assert [when for when, piece in reported if b"progress" in piece] == [0.0, PROGRESS_INTERVAL_S]


def test_comments_are_sent_during_silence() -> None:
    reported = played((12.0, CallResult(1)))
    assert [piece for _, piece in reported[:-1]] == [PING, PING]


def test_nothing_is_written_to_a_client_that_hung_up() -> None:
    assert played((0.0, progress(1)), (0.2, Failure(Code.CANCELLED, "the client hung up")))[1:] == []


def test_closing_the_stream_closes_the_call_even_before_its_first_event() -> None:
    follower = Script((0.0, progress(1)))
    ProgressStream(follower, None, PullEventWriter(), "r1", 5.0, follower.clock).close()  # type: ignore[arg-type]
    assert follower.closed == 1
