"""A worker's bus without sockets: it keeps what the worker sends and publishes."""

from __future__ import annotations

from typing import Any

from protocol.messages.events import Event, unpack_batch


class FakeWorkerBus:
    """Keeps what the worker sends."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.events: list[Event] = []
        self.on_subscription: Any = None
        self.on_message: Any = None

    def send(self, message: Any) -> None:
        self.sent.append(message)

    def send_soon(self, message: Any, _delay: float) -> None:
        self.sent.append(message)

    def publish(self, to: bytes, batch: bytes) -> bool:
        self.events += unpack_batch(to + b"w." + batch, len(to))[1]
        return True
