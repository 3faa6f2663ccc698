"""What peers tell a new supervisor after the last one has died or was replaced: the payload of their ``Hello``.

The supervisor keeps nothing on a disk for this. Each peer knows its own part: a worker its model and its attempts, a
gateway its requests and their callers, a job its order. A snapshot describes the peer at the moment when its ``Hello``
is sent. Every later message on the same connection continues from there.
"""

from __future__ import annotations

import msgspec

from protocol.messages.caller import Caller
from protocol.messages.engines import EngineReady, LoadProgressed
from protocol.messages.models import PolicyOverrides
from protocol.messages.peers import ModelInUse
from protocol.messages.work import AttemptEnded
from protocol.models.recipes import ModelSpec
from protocol.times import Age
from protocol.wire.envelope import control_message
from protocol.worker_states import WorkerState


@control_message
class RememberState(msgspec.Struct, frozen=True):
    """Supervisor → worker, after a load and when it changes: keep this, and put it into the next snapshot.

    It is for the supervisor's successor.
    """

    state: PolicyOverrides


class AttemptSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """One attempt that a worker holds. ``age``: since its ``Run`` arrived."""

    gateway: str
    number: int
    attempt: int
    weight: int
    """The slots that ``Run`` granted it."""
    age: Age
    abandoned: bool = False
    """Whether ``AttemptAbandoned`` was sent for it."""


class WorkerSnapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """Worker → supervisor, the payload of ``Hello``."""

    state: WorkerState = msgspec.field(default=WorkerState.SPARE, name="phase")
    """What the worker knows of its state: one of the values of :data:`~protocol.worker_states.KNOWN_TO_WORKER`."""
    spec: ModelSpec | None = None
    """The model of its engine; None while it is a spare."""
    facts: EngineReady | None = None
    """The last ``EngineReady`` of the present engine, if one was sent."""
    attempts: list[AttemptSnapshot] = []
    ended: list[AttemptEnded] = []
    """The latest ends, which a dead supervisor may not have read, without the times of tokens. At most :data:`MAX_ENDED`.

    Attempts that the worker returned (``AttemptEnded`` with ``returned``) are left out: their gateways got no event.
    """
    last_use: Age | None = None
    """The engine became ready, or an attempt with slots began or ended; None: never."""
    remembered: PolicyOverrides = PolicyOverrides()
    context: int = 0
    """As in the last ``StartEngine``."""
    need: dict[str, int] = {}
    """As in the last ``StartEngine``."""
    load_age: Age = 0.0
    """While it loads: since the load began."""
    progress: LoadProgressed | None = None
    """While it loads: what it reported last."""
    ready_age: Age | None = None
    """Since its engine became ready; None if it is not."""
    paths: dict[str, str] = {}
    """As in the last ``StartEngine``."""
    replica: int = 1
    """As in the last ``StartEngine``."""
    backend: str = ""
    """As in the last ``StartEngine``."""
    device: str = ""
    """As in the last ``StartEngine``."""

    @property
    def model_in_use(self) -> ModelInUse | None:
        """What every version must know of its model."""
        if self.spec is None or self.state in (WorkerState.SPARE, WorkerState.LEAVING):
            return None
        overrides = self.remembered
        return ModelInUse(self.spec.name, self.spec.asked, pinned=overrides.pinned, ttl=overrides.ttl)


MAX_ENDED = 256
"""How many ended attempts a worker remembers: more than can end while messages wait in the socket of a dying supervisor."""


class RequestSnapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """One attempt that a gateway waits for. ``age``: since its request arrived."""

    number: int
    attempt: int
    age: Age
    worker: str = ""
    """Where it runs. Empty: unknown, and a ``SubmitRequest`` for it follows on this connection."""
    caller: Caller | None = None
    more: bool = False
    """As in ``SubmitRequest``, and so are the others."""
    label: str = ""
    endpoint: str = ""
    dialect: str = ""
    stream: bool = False


class GatewaySnapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """Gateway → supervisor, the payload of ``Hello``: all attempts that have not ended for it."""

    requests: list[RequestSnapshot] = []


class JobSnapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """Job → supervisor, the payload of ``Hello``.

    ``order``: the frame of the order that it carries out, empty if it got none. Its latest progress and its result, if
    any, follow as messages.
    """

    order: bytes = b""


@control_message
class Recovered(msgspec.Struct, frozen=True):
    """Supervisor → gateways, when it has taken over: workers that are not in the list are gone.

    It follows the ``WorkerUp`` of each worker in the list. Attempts of other workers are treated as after
    ``WorkerGone``.
    """

    workers: list[str]
    nodes: list[str] = []
    """The nodes in the server besides the head: a worker of any other one is gone with its node."""
