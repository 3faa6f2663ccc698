"""Whether the server takes requests: its readiness after the start, and the operator's drain."""

from __future__ import annotations

import msgspec

from protocol.messages.calls import repeated_call
from protocol.wire.envelope import control_message


@control_message
class ServerReadiness(msgspec.Struct, frozen=True):
    """Supervisor → gateways, before each :class:`~protocol.messages.peers.Welcome` and on each change."""

    ready: bool
    """Whether each model for the start has been loaded or has failed for good. Once true, it stays true."""
    drained: bool
    """Whether an operator has drained the server: it takes no new requests."""


@repeated_call
class SetDrain(msgspec.Struct, frozen=True):
    """Take no new requests, or take them again. → :class:`DrainReport`."""

    number: int
    drained: bool


@repeated_call
class GetDrain(msgspec.Struct, frozen=True):
    """→ :class:`DrainReport`."""

    number: int


class DrainReport(msgspec.Struct, frozen=True):
    """Whether the server is drained, and what it still has to do."""

    drained: bool
    running: int
    """Requests that engines work on, and long lists between two pieces."""
    queued: int
    """Requests that wait, or of which pictures or recordings are still being read."""


@repeated_call
class GetReadiness(msgspec.Struct, frozen=True, omit_defaults=True):
    """→ :class:`ReadinessReport`, about one model if one is named."""

    number: int
    model: str = ""


class AwaitedModel(msgspec.Struct, frozen=True):
    """A model that is not ready."""

    model: str
    state: str
    """A state of the model's lifecycle (``supervisor/scheduler/model_states.py``)."""
    reason: str
    """Why its last load failed; empty if none has."""


class ReadinessReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether the server, or the model that was asked about, is ready; if not, which models are awaited."""

    ready: bool
    awaited: list[AwaitedModel] = []
