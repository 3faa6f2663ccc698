"""An application on a house without sockets: calls and questions are answered by a test's functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import falcon.testing
import msgspec

from gateway.app import create_app
from gateway.house import House, State
from gateway.spool import Spool
from protocol import wire, work
from protocol.admin import Answer, Forget, Progress
from protocol.events import Event, Kind, Outcome
from protocol.failures import Failure
from protocol.settings import Settings


class Line:
    """Stands in for the bus: what is sent is kept, and answered at once from ``reports`` and ``answers``.

    ``reports``: message type → report, :class:`Failure`, or a list of progress that ends with one of these.
    ``answers``: endpoint → the engine's JSON, or a failure.
    """

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.bodies: list[bytes] = []
        self.reports: dict[type, Any] = {}
        self.answers: dict[str, Any] = {}
        self.house: House

    def send(self, message: msgspec.Struct, payload: bytes = b"") -> None:
        self.sent.append(message)
        if isinstance(message, work.Ask):
            self.bodies.append(payload or b"")
            self._answer(message)
        elif not isinstance(message, Forget | work.Cancel):
            number: int = message.number  # type: ignore[attr-defined]
            said = self.reports[type(message)]
            for each in said if isinstance(said, Messages) else [said]:
                self._report(number, each)

    def _report(self, number: int, said: Any) -> None:
        if isinstance(said, Failure):
            self.house.on_message(work.Refused(number, 0, said), b"")
        elif isinstance(said, Progress):
            self.house.on_message(msgspec.structs.replace(said, number=number), b"")
        else:
            self.house.on_message(Answer(number), wire.pack(said))

    def _answer(self, ask: work.Ask) -> None:
        said = self.answers[ask.endpoint]
        if isinstance(said, Failure):
            self.house.on_message(work.Refused(ask.number, ask.attempt, said), b"")
            return
        self.house.on_message(work.Granted([work.Grant(ask.number, ask.attempt, "w1", ask.model or "latest")]), b"")
        data = msgspec.json.encode(said)
        self.house.on_events(
            [
                Event(ask.number, ask.attempt, 0, Kind.DELTA, 1, data),
                Event(ask.number, ask.attempt, 1, Kind.DONE, 0, wire.pack(Outcome())),
            ],
            "w1",
        )
        self.house.wake()

    def connect(self, endpoint: str) -> None:
        """Nothing to connect."""

    def disconnect(self, worker: str, endpoint: str) -> None:
        """Nothing to disconnect."""

    def run(self, worker: str, message: msgspec.Struct, payload: bytes = b"") -> bool:
        """Nothing is lent here."""
        return False

    def lent(self, worker: str) -> None:
        """Nothing is lent here."""

    def ended(self, endpoint: str) -> bool:
        return True

    def drain_events(self) -> None:
        """Nothing to drain."""


class Messages(list[Any]):
    """Several messages under one number."""


class Answering:
    """The application, its client, and the line that answers."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        settings = msgspec.structs.replace(Settings(cache_dir=str(folder / "cache")), **changes)
        self.line = Line()
        self.reports, self.answers = self.line.reports, self.line.answers
        self.house = self.line.house = House("g1", settings, Spool(folder, "g1", 1 << 20))
        self.house.open(self.line)
        self.house.state = State.OPEN
        self.client = falcon.testing.TestClient(create_app(self.house))

    def asked(self, cls: type) -> list[Any]:
        """What was sent of this kind."""
        return [message for message in self.line.sent if isinstance(message, cls)]

    def __call__(self, method: str, path: str, body: Any = None, **kwargs: Any) -> falcon.testing.Result:
        """Send a request; ``body``: bytes as they are, anything else as JSON."""
        if body is not None:
            kwargs["body"] = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return self.client.simulate_request(method, path, **{"host": "localhost", **kwargs})
