"""A client that reads sound more slowly than it is made: the engine is told to wait, and nothing is lost."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from protocol.ids import RequestKey, hold_topic
from protocol.messages.events import EventKind
from tests.gateway.fake_supervisor import wait_for
from tests.gateway.fake_worker import ReceivedRequest
from tests.gateway.gateway_harness import GatewayHarness
from tests.gateway.raw_http import parsed, read_to_end, request

PATH = "/v1/audio/speech"
SPEECH = {"model": "tiny", "input": "a", "response_format": "pcm"}
FIRST = b"0123456789abcdef" * 768 * 1024
"""12 MiB, whose write ends only when the client reads: the kernel takes at most 4 of them."""
SECOND = b"fedcba9876543210" * 256 * 1024
"""4 MiB, which wait meanwhile: more than the gateway keeps of sound before the engine is to wait."""


@contextmanager
def unread_answer(harness: GatewayHarness) -> Iterator[tuple[socket.socket, ReceivedRequest]]:
    with harness.connect() as client:
        client.sendall(request("POST", PATH, SPEECH))
        received = harness.next_request()
        harness.do(lambda: harness.grant(received))
        harness.do(lambda: harness.publish(received, [received.event(0, EventKind.DELTA, FIRST, 1)]))
        assert client.recv(1, socket.MSG_PEEK), "the first piece is being written"
        harness.do(lambda: harness.publish(received, [received.event(1, EventKind.DELTA, SECOND, 1)]))
        wait_for(lambda: is_held(harness, received))
        yield client, received


def is_held(harness: GatewayHarness, received: ReceivedRequest) -> bool:
    key = RequestKey(received.gateway, received.message.number, received.message.attempt)
    topics: set[bytes] = harness.do(harness.workers["w1"].read_topics)
    return hold_topic(key) in topics


def test_the_engine_waits_until_its_client_reads_on(harness: GatewayHarness) -> None:
    with unread_answer(harness) as (client, received):
        pieces = []
        while sum(map(len, pieces)) < len(FIRST):
            pieces.append(client.recv(1024 * 1024))
        wait_for(lambda: not is_held(harness, received))
        harness.do(lambda: harness.publish(received, [received.done(2)]))
        status, _, sound = parsed(b"".join([*pieces, read_to_end(client)]))
    assert (status, sound == FIRST + SECOND) == (200, True)


def test_a_hang_up_ends_the_wait_and_the_request(harness: GatewayHarness) -> None:
    with unread_answer(harness) as (client, received):
        client.close()
        assert harness.cancel_of(received).reason == "cancelled"
        wait_for(lambda: not is_held(harness, received))
