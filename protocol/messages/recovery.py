"""What peers tell a new supervisor, whose predecessor has died or was replaced: the payload of their ``Hello``.

The supervisor keeps nothing on a disk for this.  What runs is known where it runs: a worker knows its model and its
attempts, a gateway its requests and their callers, a job its order.  A snapshot describes the peer at the moment at which
its ``Hello`` is sent; every later message on the same connection continues from there.
"""

from __future__ import annotations

import enum

import msgspec

from protocol.messages.peers import EngineReady, ModelInUse
from protocol.messages.work import Caller
from protocol.models.recipes import ModelSpec
from protocol.wire.envelope import control_message


class WorkerPhase(enum.StrEnum):
    """What a worker does, as its snapshot says it."""

    SPARE = "spare"
    """It has no engine; a check that was under way is not continued."""
    LOADING = "loading"
    """Its engine was started and is not ready: ``EngineReady`` or ``LoadFailed`` follows."""
    READY = "ready"
    ENGINE_LOST = "engine_lost"
    """Its engine died; it waits for ``StartEngine`` or ``Shutdown``."""
    LEAVING = "leaving"
    """It was told to end, and does so when its attempts have ended."""


class RememberedState(msgspec.Struct, frozen=True, omit_defaults=True):
    """What calls asked for a loaded model, and its worker keeps for the supervisor's successor; None: as the settings say."""

    pinned: bool | None = None
    ttl: float | None = None
    """Idle seconds until the model is unloaded, 0: as soon as it is idle; infinite: never."""


@control_message
class RememberState(msgspec.Struct, frozen=True):
    """Supervisor → worker, after a load and when it changes: keep this, and put it into the next snapshot."""

    state: RememberedState


class AttemptSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """One attempt that a worker holds. ``began``: when its ``Run`` arrived, by ``CLOCK_MONOTONIC``."""

    gateway: str
    number: int
    attempt: int
    weight: int
    """The slots that it was granted, from ``Run``."""
    began: float
    abandoned: bool = False
    """``AttemptAbandoned`` was sent for it."""


class AttemptId(msgspec.Struct, frozen=True, array_like=True):
    """The key of an attempt."""

    gateway: str
    number: int
    attempt: int


class WorkerSnapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """Worker → supervisor, the payload of ``Hello``."""

    phase: WorkerPhase = WorkerPhase.SPARE
    spec: ModelSpec | None = None
    """The model of its engine; None while it is a spare."""
    facts: EngineReady | None = None
    """What ``EngineReady`` said, once it was sent for the present engine."""
    attempts: list[AttemptSnapshot] = []
    ended: list[AttemptId] = []
    """The attempts that ended last: a supervisor that died may not have read their ends. At most :data:`MAX_ENDED`.

    Those that it returned (``AttemptEnded`` with ``returned``) are not among them: their gateways got no event.
    """
    last_use: float = 0.0
    """When the engine became ready, or an attempt with slots began or ended last, by ``CLOCK_MONOTONIC``; 0: never."""
    remembered: RememberedState = RememberedState()

    @property
    def model_in_use(self) -> ModelInUse | None:
        """What every version must know of its model."""
        if self.spec is None or self.phase in (WorkerPhase.SPARE, WorkerPhase.LEAVING):
            return None
        return ModelInUse(self.spec.name, self.spec.asked, self.remembered.pinned, self.remembered.ttl)


MAX_ENDED = 256
"""Attempts whose end a worker remembers: more than can end while messages wait in the socket of a supervisor that dies."""


class RequestSnapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """One attempt that a gateway waits for. ``since``: when its request arrived, by ``CLOCK_MONOTONIC``."""

    number: int
    attempt: int
    since: float
    worker: str = ""
    """Where it runs; empty if that is not known: then a ``SubmitRequest`` for it follows on this connection."""
    caller: Caller | None = None


class GatewaySnapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """Gateway → supervisor, the payload of ``Hello``: all attempts that it has not ended."""

    requests: list[RequestSnapshot] = []


class JobSnapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """Job → supervisor, the payload of ``Hello``.

    ``order``: the frame of the order that it carries out, empty if it got none.  Its last progress and its result, if there
    are any, follow as messages.
    """

    order: bytes = b""


@control_message
class Recovered(msgspec.Struct, frozen=True):
    """Supervisor → gateways, when it has taken over: every worker that is not in the list is gone.

    It follows the ``WorkerUp`` of each worker in the list.  Attempts of other workers get ``WorkerGone``'s treatment.
    """

    workers: list[str]
