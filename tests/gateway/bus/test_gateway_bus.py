"""The gateway's sockets while the supervisor does not read: new requests are refused, and ends of requests arrive in order."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gevent
import pytest
import zmq

from gateway.bus import sockets
from gateway.bus.calls import SupervisorCall
from gateway.bus.session import SupervisorSession
from gateway.bus.sockets import GatewayBus
from gateway.http.request_context import RequestContext
from gateway.requests.exchange import RequestExchange
from gateway.requests.inference_request import InferenceRequest
from gateway.requests.spool import Spool
from protocol.config.settings import Settings
from protocol.failures import Code, LemonbusError
from protocol.messages.calls import AbandonCall
from protocol.messages.health import GetHealth
from protocol.messages.work import Cancel, SubmitRequest
from protocol.runtime.process_context import ProcessContext
from protocol.wire import endpoints, envelope, frames

DEADLINE = 10.0
LIMIT = 8
"""Number of messages that the outbox takes, and that ZeroMQ takes before it."""


class UnreadBus:
    """A gateway's bus whose supervisor reads nothing until :meth:`read`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._runtime = folder / "runtime"
        self._directory = endpoints.RuntimeDirectory(self._runtime)
        self._context = zmq.Context()
        self._supervisor = self._context.socket(zmq.ROUTER)
        self._supervisor.bind(endpoints.bus(self._runtime))
        self._taken = 0
        self._read = False
        self._send = frames.send
        self.session = SupervisorSession("g1", Settings(), Spool(folder, "g1", 1 << 20))
        context = ProcessContext(self._runtime, os.urandom(6).hex(), os.getpid())
        monkeypatch.setattr(frames, "send", self._send_some)
        self._bus = GatewayBus(self.session, context)
        self.session.welcomed(os.getpid())

    def _send_some(self, socket: zmq.Socket[bytes], frame: bytes) -> bool:
        """Stand in for a connection that takes little while its other end does not read."""
        if socket.type == zmq.DEALER:
            self._taken += 1
            if self._taken > LIMIT and not self._read:
                return False
        return self._send(socket, frame)

    def start_request(self) -> RequestExchange:
        """Send a request to the supervisor."""
        return self.session.start_exchange(
            InferenceRequest("chat/completions", "tiny", b"{}", "r.1"), RequestContext("r.1")
        )

    def start_call(self) -> SupervisorCall:
        """Send a call that never ends by itself."""
        return self.session.start_call({}, GetHealth, endless=True)

    def read(self, count: int) -> list[Any]:
        """Return the ``count`` messages that the supervisor gets once it reads; fails if fewer or more come."""
        self._read = True
        received: list[Any] = []
        deadline = time.monotonic() + DEADLINE
        while len(received) < count:
            assert time.monotonic() < deadline, f"{len(received)} of {count} messages arrived"
            gevent.sleep(0.01)
            received += [envelope.decode(frame)[0] for _, frame in frames.receive_routed(self._supervisor)]
        assert len(received) == count
        return received

    def close(self) -> None:
        self._bus.close()
        self._supervisor.close(0)
        self._context.term()
        self._directory.release()


@pytest.fixture
def unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[UnreadBus]:
    monkeypatch.setattr(sockets, "MAX_OUTBOX_MESSAGES", LIMIT)
    bus = UnreadBus(tmp_path, monkeypatch)
    yield bus
    bus.close()


def test_what_clients_left_is_ended_even_if_the_outbox_was_full(unread: UnreadBus) -> None:
    call = unread.start_call()
    exchanges: list[RequestExchange] = []
    with pytest.raises(LemonbusError) as refusal:  # noqa: PT012 - the last request alone is refused
        while len(exchanges) <= 2 * LIMIT:
            exchanges.append(unread.start_request())
    assert refusal.value.failure.code is Code.OVERLOADED
    for exchange in exchanges:
        exchange.abandon(Code.CANCELLED)
    call.close()
    sent = unread.read(1 + 2 * (1 + len(exchanges)))
    numbers = [exchange.number for exchange in exchanges]
    assert [message.number for message in sent if isinstance(message, SubmitRequest)] == numbers
    assert [message.number for message in sent[-1 - len(numbers) : -1] if isinstance(message, Cancel)] == numbers
    assert sent[-1] == AbandonCall(call.number)


def test_refused_requests_and_calls_send_nothing(unread: UnreadBus) -> None:
    """Otherwise the outbox would grow with every client while the supervisor does not read."""
    taken = 0
    with pytest.raises(LemonbusError):  # noqa: PT012 - the last request alone is refused
        while taken <= 2 * LIMIT:
            unread.start_request()
            taken += 1
    for start in (unread.start_call, unread.start_request):
        with pytest.raises(LemonbusError):
            start()
    assert not any(isinstance(message, AbandonCall | Cancel) for message in unread.read(1 + taken))
