"""The events of a background response: in order, with pings, and never apparently complete for a client that lost some."""

from __future__ import annotations

import pytest

from gateway.api.responses.event_feed import EventFeed
from gateway.api.responses.input.request import ResponseRequest
from gateway.api.responses.item_ids import ResponseIds
from gateway.api.responses.output.event_stream import ResponseEventWriter
from gateway.api.responses.output.response_object import ResponseBuilder
from gateway.http.request_context import RequestContext
from protocol.failures import Code


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
