"""The events of a background response: in order, with pings, never apparently complete if some are lost, and repeatable from any number on."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from gateway.api.responses import background_stream, stored_form
from gateway.api.responses.background_stream import EventFeed, ResumedStream
from gateway.api.responses.conversation import ResponseIds
from gateway.api.responses.input.request import ResponseRequest
from gateway.api.responses.output.event_stream import ResponseEventWriter
from gateway.api.responses.output.response_object import ResponseBuilder
from gateway.http.request_context import RequestContext
from protocol.failures import Code, Failure, LemonbusError
from protocol.messages.responses import ResponseState, StoredResponse

BEGUN: dict[str, Any] = {"id": "resp_1", "status": "in_progress", "output": []}
ENDED: dict[str, Any] = {**BEGUN, "status": "completed"}
EVENTS = b"".join(b"event: e%d\ndata: {}\n\n" % number for number in range(5))
MOST = 10_000


def stored(state: ResponseState, response: dict[str, Any]) -> StoredResponse:
    return StoredResponse(state, [stored_form.stored_turn([], response)])


RUNNING = stored(ResponseState.RUNNING, stored_form.with_events(BEGUN))
WHOLE = stored(ResponseState.ENDED, stored_form.with_events(ENDED, EVENTS, MOST))
WITHOUT = stored(ResponseState.ENDED, stored_form.with_events(ENDED, EVENTS, 1))
CANCELLED = stored(ResponseState.CANCELLED, stored_form.with_events(BEGUN))


class Here:
    """A response that this process runs."""

    def __init__(self) -> None:
        self.recorded = bytearray()


def resumed(
    *states: StoredResponse, after: int = -1, here: Callable[[], Any] = lambda: None, silence: float = 5.0
) -> ResumedStream:
    left = [*states, states[-1]]
    return ResumedStream(RequestContext("r1"), lambda: left.pop(0) if len(left) > 1 else left[0], here, after, silence)


@pytest.mark.parametrize("after", [-1, 0, 3])
def test_a_response_that_has_ended_is_streamed_from_any_event_on(after: int) -> None:
    found = b"".join(resumed(WHOLE, after=after))
    assert found == EVENTS[EVENTS.index(b"event: e%d" % (after + 1)) :]


@pytest.mark.parametrize("after", [4, 99])
def test_no_event_follows_the_last_one(after: int) -> None:
    assert b"".join(resumed(WHOLE, after=after)) == b""


def test_a_stream_goes_on_as_the_response_does() -> None:
    here: list[Here] = [Here()]
    stream = resumed(RUNNING, WHOLE, after=1, here=lambda: here[0] if here else None)
    third, fourth = EVENTS.index(b"event: e3"), EVENTS.index(b"event: e4")
    here[0].recorded += EVENTS[:third]
    first = next(stream)
    here[0].recorded += EVENTS[third:fourth]
    second = next(stream)
    here.clear()
    assert (first, second) == (EVENTS[EVENTS.index(b"event: e2") : third], EVENTS[third:fourth])
    assert b"".join(stream) == EVENTS[fourth:]


def test_a_response_of_another_process_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_stream, "ELSEWHERE_S", 0.001)
    assert b"".join(resumed(RUNNING, RUNNING, RUNNING, WHOLE)) == EVENTS
    assert next(resumed(RUNNING, silence=0.01)).startswith(b":")


@pytest.mark.parametrize(
    ("end", "kind", "status"), [(WITHOUT, "completed", "completed"), (CANCELLED, "failed", "cancelled")]
)
def test_without_events_the_end_alone_is_written(end: StoredResponse, kind: str, status: str) -> None:
    (last,) = resumed(RUNNING, end, after=6)
    assert last.startswith(b"event: response.%b\n" % kind.encode())
    data = json.loads(last.partition(b"data: ")[2])
    assert (data["sequence_number"], data["response"]["status"]) == (7, status)
    assert "lemonbus_events" not in data["response"]


def test_a_response_that_was_not_streamed_is_refused() -> None:
    with pytest.raises(LemonbusError) as raised:
        resumed(stored(ResponseState.ENDED, ENDED))
    assert raised.value.failure.param == "stream"


def test_a_revoked_key_and_a_deleted_response_break_the_stream() -> None:
    stream = resumed(RUNNING)
    stream._context.withdrawal = lambda _model: Failure(Code.UNAUTHORIZED, "the key was revoked")
    with pytest.raises(ConnectionResetError, match="revoked"):
        next(stream)

    answers = [RUNNING]

    def read() -> StoredResponse:
        if not answers:
            raise Failure(Code.NOT_FOUND, "it was deleted").raised()
        return answers.pop()

    with pytest.raises(ConnectionResetError, match="deleted"):
        next(ResumedStream(RequestContext("r1"), read, lambda: None, -1, 5.0))


def test_more_events_than_may_be_kept_are_not_kept() -> None:
    class Writer:
        def ping(self) -> bytes:
            return b"event: a\n\n"

    writer: Any = Writer()
    feed = EventFeed(writer, RequestContext("r1"), limit=30, silence=1.0)
    feed.put(b": still here\n\n")
    assert feed.events_with(b"end") == b"event: a\n\nend"
    feed.put(b"event: b\n\n" * 3)
    assert feed.events_with(b"end") == b""


@pytest.fixture
def context() -> RequestContext:
    return RequestContext("r1")


def made(context: RequestContext, limit: int = 100_000) -> EventFeed:
    builder = ResponseBuilder(ResponseRequest(model="m", input="hi"), ResponseIds(), 0.0, "m")
    feed = EventFeed(ResponseEventWriter(builder), context, limit=limit, silence=0.01)
    assert next(feed).startswith(b"event: response.created")
    return feed


def test_pieces_come_in_order_and_the_last_one_is_known(context: RequestContext) -> None:
    feed = made(context)
    assert next(feed) == b": still here\n\n"
    feed.put(b"one")
    feed.put(b"")
    feed.end(b"two")
    assert next(feed) == b"one"
    assert not context.last
    assert next(feed) == b"two"
    assert context.last
    assert list(feed) == []


def test_a_client_that_does_not_read_gets_no_end(context: RequestContext) -> None:
    feed = made(context, limit=2000)
    feed.put(b"a" * 1500)
    feed.put(b"b" * 1500)
    feed.put(b"c")
    feed.end(b"end")
    assert next(feed) == b"a" * 1500
    with pytest.raises(ConnectionResetError):
        next(feed)
    assert context.failure is not None
    assert context.failure.code is Code.CLIENT_TOO_SLOW
    assert not context.last


def test_a_stream_without_an_end_breaks(context: RequestContext) -> None:
    feed = made(context)
    feed.end(b"")
    with pytest.raises(ConnectionResetError):
        next(feed)


def test_nothing_is_kept_for_a_client_that_left(context: RequestContext) -> None:
    feed = made(context)
    feed.put(b"one")
    feed.close()
    feed.put(b"two")
    feed.end(b"three")
    assert feed._pieces.empty()
