"""What attempts need from their worker: the way to supervisor and gateways, and the ready engine.

`workers.worker` has both and depends on this folder, not the other way round.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from protocol.messages.work import AttemptEnded
from protocol.models.recipes import ModelSpec
from workers.backends.base import Backend
from workers.engine.remote.engine import Engine
from workers.engine.remote.servers import EnginePool


class RequestBus(Protocol):
    """Sends messages in their order, without blocking."""

    on_subscription: Callable[[bool, bytes], None]
    """Called when a gateway subscribes to a topic (True) or leaves it: that of its events, or of an attempt to hold."""

    def send(self, message: msgspec.Struct) -> None:
        """Send a message to the supervisor, if there is one."""

    def send_soon(self, end: AttemptEnded, seconds: float) -> None:
        """Send an end within ``seconds``, with others. Only for an end that no request waits for."""

    def send_ends_if_due(self) -> None:
        """Send the ends that have waited for half of their time."""

    def publish(self, topic: bytes, batch: bytes) -> bool:
        """Send the events of one loop iteration to a gateway; return False if its queue is full."""


class ProgressMonitor(Protocol):
    """Ends an engine that makes no progress with its requests."""

    def wake(self) -> None:
        """Watch from now on: the engine has a request."""

    def progress(self) -> None:
        """Note that the engine has shown progress."""


class RequestEngine(Protocol):
    """An engine that answers requests."""

    @property
    def spec(self) -> ModelSpec:
        """Its model."""

    @property
    def backend(self) -> Backend:
        """How requests are put to it."""

    @property
    def engine(self) -> Engine:
        """Its process."""

    @property
    def pool(self) -> EnginePool:
        """The connections to it."""

    @property
    def monitor(self) -> ProgressMonitor:
        """Watches its progress."""

    def end_silent(self, reason: str, *, works: bool) -> None:
        """End it: it does not answer. ``works``: it uses the processor, so a request is the reason."""

    def end_useless(self) -> None:
        """End it: it has worked for too long on a request whose client is gone."""

    def end_unusable(self, reason: str) -> None:
        """End it: its slots cannot be freed any more."""
