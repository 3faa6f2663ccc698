"""A worker's bus without sockets: it keeps all messages that the worker sends and publishes."""

from __future__ import annotations

from typing import Any

from protocol.messages.events import Event, unpack_batch


class FakeWorkerBus:
    """Keeps the worker's messages in order."""

    def __init__(self) -> None:
        self.outgoing: list[Any] = []
        """Messages to the supervisor, and events to gateways."""
        self._delayed: list[Any] = []
        self.on_subscription: Any = None
        self.on_message: Any = None
        self.pings = 0
        self.endpoint = self.remote_endpoint = ""

    @property
    def sent(self) -> list[Any]:
        """The messages to the supervisor."""
        return [each for each in self.outgoing if not isinstance(each, Event)]

    @property
    def events(self) -> list[Event]:
        """The events to all gateways."""
        return [each for each in self.outgoing if isinstance(each, Event)]

    def flush(self) -> None:
        """Send delayed messages, as the timer of a real bus does."""
        self.outgoing += self._delayed
        self._delayed.clear()

    def send(self, message: Any) -> None:
        self.flush()
        self.outgoing.append(message)

    def send_soon(self, message: Any, _delay: float) -> None:
        """Keep a message until the next one is sent, or :meth:`flush`: there are no timers here."""
        self._delayed.append(message)

    def send_ends_if_due(self) -> None:
        """Do nothing: delayed messages wait for :meth:`flush`."""

    def publish(self, to: bytes, batch: bytes) -> bool:
        self.outgoing += unpack_batch(to + b"w." + batch, len(to))[1]
        return True
