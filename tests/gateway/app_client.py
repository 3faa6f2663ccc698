"""The gateway's application without sockets: a test sets the answers of supervisor and engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import falcon.testing
import msgspec

from gateway.api.common.dialect import Dialect
from gateway.app import DIALECTS, create_app
from gateway.bus.message_handlers import MessageHandlers
from gateway.bus.session import SupervisorSession
from gateway.requests.spool import Spool
from protocol.config.settings import Settings
from protocol.failures import Code, Failure
from protocol.ids import RequestKey
from protocol.messages import work
from protocol.messages.calls import AbandonCall, CallResult, Progress
from protocol.messages.events import Event, EventKind, Outcome
from protocol.messages.readiness import ServerReadiness
from protocol.messages.recovery import GatewaySnapshot
from protocol.wire import envelope


class FakeGatewayBus:
    """Stands in for the bus: it keeps sent messages, and answers them at once from ``reports`` and ``answers``.

    ``reports``: message type → report, :class:`Failure`, or a list of progress that ends with one of these.
    ``answers``: endpoint → the engine's JSON, or a failure.
    """

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.snapshots: list[GatewaySnapshot] = []
        self.supervisor_pid = 1
        self.broken = False
        """Whether there is a connection to the supervisor."""
        """Of the supervisor that listens."""
        self.bodies: list[bytes] = []
        self.reports: dict[type, Any] = {work.ReserveRequest: {}}
        self.answers: dict[str, Any] = {}
        self.handlers: MessageHandlers

    def send(self, message: msgspec.Struct, payload: bytes = b"", *, must_arrive: bool = False) -> None:
        self.sent.append(message)
        envelope.encode(message, payload)  # as the bus does: a message that cannot be encoded must not come this far
        if isinstance(message, work.SubmitRequest):
            self.bodies.append(payload or b"")
            self._answer(message)
        elif not isinstance(message, AbandonCall | work.Cancel):
            number: int = message.number  # type: ignore[attr-defined]
            report = self.reports[type(message)]
            for each in report if isinstance(report, SeveralMessages) else [report]:
                self._report(number, each)

    def _report(self, number: int, report: Any) -> None:
        if isinstance(report, Failure):
            self.handlers.on_message(work.Refused(number, 0, report), b"")
        elif isinstance(report, Progress):
            self.handlers.on_message(msgspec.structs.replace(report, number=number), b"")
        else:
            self.handlers.on_message(CallResult(number), envelope.pack_payload(report))

    def _answer(self, ask: work.SubmitRequest) -> None:
        report = self.answers[ask.endpoint]
        if isinstance(report, Failure):
            self.handlers.on_message(work.Refused(ask.number, ask.attempt, report), b"")
            return
        self.handlers.on_message(
            work.Granted([work.GrantedAttempt(ask.number, ask.attempt, "w1", ask.model or "latest")]), b""
        )
        streamed = report if isinstance(report, StreamedAnswer) else StreamedAnswer([msgspec.json.encode(report)])
        events = [
            Event(ask.number, ask.attempt, seq, EventKind.DELTA, 1, data) for seq, data in enumerate(streamed.pieces)
        ]
        kind = EventKind.DONE if streamed.failure is None else EventKind.FAILED
        end = envelope.pack_payload(streamed.failure or Outcome())
        events.append(Event(ask.number, ask.attempt, len(events), kind, 0, end))
        self.handlers.on_events(events, "w1")
        self.handlers.notify_exchanges()

    def read_control(self) -> None:
        """Do nothing: everything is answered at once."""

    def find_supervisor(self) -> int:
        return self.supervisor_pid

    def connect_control(self, snapshot: bytes) -> None:
        """Keep the snapshot that came with Hello."""
        self.snapshots.append(envelope.unpack_payload(snapshot, GatewaySnapshot))

    def disconnect_control(self) -> None:
        """Nothing waits."""

    def hold(self, attempt: RequestKey, on: bool) -> None:
        """Nothing is held."""

    def use_topic(self, gateway: str, former: str) -> None:
        """There are no topics."""

    def connection_is_broken(self) -> bool:
        return self.broken

    def watch_supervisor(self, pid: int) -> None:
        """No process is watched."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call at once."""
        callback()

    def connect(self, endpoint: str) -> None:
        """Nothing to connect."""

    def disconnect(self, endpoint: str) -> None:
        """Nothing to disconnect."""

    def ended(self, endpoint: str) -> bool:
        return True

    def drain_events(self) -> None:
        """Nothing to drain."""


class SilentBus(FakeGatewayBus):
    """Keeps sent messages, and answers nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.full = False
        self.living: set[str] = set()
        """Workers whose connections have not ended, by their endpoints."""

    def send(self, message: msgspec.Struct, payload: bytes = b"", *, must_arrive: bool = False) -> None:
        if self.full and not must_arrive:
            raise Failure(Code.OVERLOADED, "the supervisor does not keep up").raised()
        self.sent.append(message)

    def connect(self, endpoint: str) -> None:
        self.living.add(endpoint)

    def ended(self, endpoint: str) -> bool:
        return endpoint not in self.living


class SeveralMessages(list[Any]):
    """Several messages under one number."""


class StreamedAnswer:
    """An engine's streamed answer: its chunks, and the failure that ends it, if any."""

    def __init__(self, chunks: list[Any], failure: Failure | None = None) -> None:
        self.pieces = [
            each if isinstance(each, bytes) else b"data: " + msgspec.json.encode(each) + b"\n\n" for each in chunks
        ]
        self.failure = failure


class AppClient:
    """The application, a client of it, and the fake bus that answers."""

    def __init__(self, folder: Path, dialects: Sequence[Dialect] = DIALECTS, **changes: Any) -> None:
        settings = msgspec.structs.replace(
            Settings(state_dir=str(folder / "state"), cache_dir=str(folder / "cache"), runtime_dir=str(folder)),
            **changes,
        )
        self.bus = FakeGatewayBus()
        self.reports, self.answers = self.bus.reports, self.bus.answers
        self.session = SupervisorSession("g1", settings, Spool(folder, "g1", 1 << 20))
        self.bus.handlers = self.session.open(self.bus)
        self.session.connect()
        self.session.server_changed(ServerReadiness(ready=True, drained=False))
        self.session.welcomed(1)
        self.client = falcon.testing.TestClient(create_app(self.session, dialects))

    def asked(self, cls: type) -> list[Any]:
        """Return the messages of this class that were sent."""
        return [message for message in self.bus.sent if isinstance(message, cls)]

    def __call__(self, method: str, path: str, body: Any = None, **kwargs: Any) -> falcon.testing.Result:
        """Send a request; ``body``: bytes as they are, anything else as JSON."""
        if body is not None:
            kwargs["body"] = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return self.client.simulate_request(method, path, **{"host": "localhost", "remote_addr": "127.0.0.1", **kwargs})
