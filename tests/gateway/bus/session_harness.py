"""A session with the supervisor, which the test plays; the bus delivers when the test says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gateway.bus.session import SupervisorSession
from gateway.http.request_context import RequestContext
from gateway.requests.exchange import RequestExchange
from gateway.requests.inference_request import InferenceRequest
from gateway.requests.spool import Spool
from protocol.config.api_keys import ApiKey
from protocol.config.settings import Settings
from protocol.messages.events import Event, EventKind, Outcome
from protocol.messages.peers import Welcome
from protocol.messages.work import Granted, GrantedAttempt, SubmitRequest
from protocol.wire import envelope
from tests.gateway.app_client import SilentBus


class DelayingBus(SilentBus):
    """Calls back when the test runs an iteration of the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.callbacks: list[Any] = []
        self.unread: list[Any] = []
        """Messages that a supervisor sent before its end."""

    def call_later(self, seconds: float, callback: Any) -> None:
        self.callbacks.append(callback)

    def iterate(self) -> None:
        callbacks, self.callbacks = self.callbacks, []
        for callback in callbacks:
            callback()

    def read_control(self) -> None:
        unread, self.unread = self.unread, []
        for message in unread:
            self.handlers.on_message(message, b"")


class SessionHarness:
    """A session whose supervisor the test is."""

    def __init__(self, folder: Path) -> None:
        self.bus = DelayingBus()
        self.session = SupervisorSession("g1", Settings(), Spool(folder, "g1", 1 << 20))
        self.bus.handlers = self.handlers = self.session.open(self.bus)
        self.session.connect()

    def welcome(self) -> None:
        self.handlers.on_message(Welcome("b1", 1), b"")

    def start(
        self,
        label: str = "r.1",
        key: ApiKey | None = None,
        body: bytes = b"{}",
        earlier: Outcome | None = None,
        more: bool = False,
    ) -> RequestExchange:
        context = RequestContext(label)
        context.api_key = key
        request = InferenceRequest("chat/completions", "tiny", body, label, earlier=earlier, more=more)
        return self.session.start_exchange(request, context)

    def grant(self, exchange: RequestExchange, worker: str = "w1") -> None:
        grant = GrantedAttempt(exchange.number, exchange.attempt, worker, "tiny")
        self.handlers.on_message(Granted([grant]), b"")

    def deliver(self, exchange: RequestExchange, *kinds: EventKind, worker: str = "w1") -> None:
        """Deliver events of the present attempt, from its first."""
        data = {EventKind.DELTA: b"text", EventKind.DONE: envelope.pack_payload(Outcome())}
        batch = [Event(exchange.number, exchange.attempt, seq, kind, 1, data[kind]) for seq, kind in enumerate(kinds)]
        self.handlers.on_events(batch, worker)
        self.handlers.notify_exchanges()

    def end_supervisor(self) -> None:
        self.bus.sent.clear()
        self.session.supervisor_ended()

    def submitted(self) -> list[tuple[int, int, bool]]:
        """Return number and attempt of each request that was sent, and whether it was sent again, with its age."""
        return [(each.number, each.attempt, each.age is not None) for each in self._sent()]

    def ages(self) -> list[float | None]:
        """Return the age of each request that was sent."""
        return [each.age for each in self._sent()]

    def _sent(self) -> list[SubmitRequest]:
        return [each for each in self.bus.sent if isinstance(each, SubmitRequest)]
