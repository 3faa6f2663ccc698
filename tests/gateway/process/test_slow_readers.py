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
PIECE = b"0123456789abcdef" * 65_536
PIECES = 20
"""20 MiB: more than the gateway and the kernel keep for a client, and less than what breaks the answer."""


@contextmanager
def unread_answer(harness: GatewayHarness) -> Iterator[tuple[socket.socket, ReceivedRequest]]:
    with harness.connect() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(request("POST", PATH, SPEECH))
        received = harness.next_request()
        harness.do(lambda: harness.grant(received))
        batch = [received.event(seq, EventKind.DELTA, PIECE, 1) for seq in range(PIECES)]
        harness.do(lambda: harness.publish(received, batch))
        yield client, received


def is_held(harness: GatewayHarness, received: ReceivedRequest) -> bool:
    key = RequestKey(received.gateway, received.message.number, received.message.attempt)
    topics: set[bytes] = harness.do(harness.workers["w1"].read_topics)
    return hold_topic(key) in topics


def test_the_engine_waits_until_its_client_reads_on(harness: GatewayHarness) -> None:
    with unread_answer(harness) as (client, received):
        wait_for(lambda: is_held(harness, received))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024 * 1024)
        end = [received.done(PIECES)]
        body = b""
        while len(body) < PIECES * len(PIECE) // 2:
            body += client.recv(1024 * 1024)
        wait_for(lambda: not is_held(harness, received))
        harness.do(lambda: harness.publish(received, end))
        status, _, sound = parsed(body + read_to_end(client))
    assert (status, sound == PIECES * PIECE) == (200, True)


def test_a_hang_up_ends_the_wait_and_the_request(harness: GatewayHarness) -> None:
    with unread_answer(harness) as (client, received):
        wait_for(lambda: is_held(harness, received))
        client.close()
        assert harness.cancel_of(received).reason == "cancelled"
        wait_for(lambda: not is_held(harness, received))
