"""Exceptions in the handling of messages are reported to the supervisor, each once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.bus.session import SupervisorSession
from gateway.requests.spool import Spool
from protocol.config.settings import Settings
from protocol.failures import Code, Failure
from protocol.messages.events import Event, EventKind
from protocol.messages.peers import Ping, Pong
from protocol.messages.work import Granted
from tests.gateway.app_client import FakeBus


class SilentBus(FakeBus):
    """Keeps what is sent, and answers nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.full = False

    def send(self, message: msgspec.Struct, payload: bytes = b"") -> None:
        if self.full:
            raise Failure(Code.OVERLOADED, "the supervisor does not keep up").raised()
        self.sent.append(message)


class OpenedSession:
    """A session on a fake bus, and its handlers."""

    def __init__(self, folder: Path) -> None:
        self.bus = SilentBus()
        self.handlers = SupervisorSession("g1", Settings(), Spool(folder, "g1", 1 << 20)).open(self.bus)

    def ping(self, number: int) -> list[Any]:
        """Return what was sent for a ping."""
        self.bus.sent.clear()
        self.handlers.on_message(Ping(number), b"")
        return self.bus.sent

    def break_lease(self, number: int) -> None:
        """Deliver an event about a lease whose terms cannot be decoded."""
        self.handlers.on_events([Event(number, 1, 0, EventKind.LEASE_ISSUED, 0, b"x")], "w1")


@pytest.fixture
def opened(tmp_path: Path) -> OpenedSession:
    return OpenedSession(tmp_path)


def test_a_pong_reports_the_exceptions_since_the_one_before(opened: OpenedSession) -> None:
    assert opened.ping(1) == [Pong(1)]
    opened.break_lease(1)
    opened.handlers.on_message(Granted([None]), b"")  # type: ignore[list-item]
    assert opened.ping(2) == [Pong(2, errors=2)]
    assert opened.ping(3) == [Pong(3)]


def test_what_a_pong_that_was_not_sent_would_have_reported_is_reported_by_the_next(opened: OpenedSession) -> None:
    opened.break_lease(1)
    opened.bus.full = True
    assert opened.ping(1) == []
    opened.bus.full = False
    # The broken lease, and the full outbox, which is logged as an error, too.
    assert opened.ping(2) == [Pong(2, errors=2)]
    assert opened.ping(3) == [Pong(3)]
