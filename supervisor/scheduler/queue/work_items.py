"""What waits for a model, and what holds its slots: queued requests, pending calls and grants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from protocol.ids import RequestKey
from protocol.messages.caller import Caller
from protocol.messages.events import Outcome
from protocol.messages.work import AttemptProgress, SubmitRequest
from protocol.models.recipes import ModelSpec, OptionValue
from supervisor.scheduler.crash_record import RequestOrigin

BATCH_ORDER: Final = 1 << 61
"""Added to the order of arrival of a batch's requests: all others come before them, wherever the order decides."""


class ShownRequest(Protocol):
    """What operators are shown of a request."""

    @property
    def label(self) -> str:
        """The request id."""

    @property
    def endpoint(self) -> str:
        """What an engine was asked for."""

    @property
    def dialect(self) -> str:
        """The API family of its route."""

    @property
    def stream(self) -> bool:
        """Whether its answer is streamed."""


class QueuedRequest:
    """A request that waits for a slot, with its position in the order of arrival."""

    __slots__ = ("key", "order", "payload", "prefixes", "request", "since")

    def __init__(self, key: RequestKey, request: SubmitRequest, payload: bytes, order: int, since: float) -> None:
        """Remember what to run, and since when it waits (monotonic seconds)."""
        self.key = key
        self.request = request
        self.payload = payload
        self.order = order
        self.since = since
        self.prefixes: tuple[int, ...] | None = None
        """See :mod:`supervisor.scheduler.replicas.prefixes`; None unless replicas were compared by them."""

    @property
    def is_read(self) -> bool:
        """Whether it needs the engine but none of its slots. A suspect read runs alone, like every suspect request."""
        return self.request.weight == 0 and not self.request.suspect


def is_of_batch(request: QueuedRequest | SlotGrant) -> bool:
    """Return whether a request is a line of a batch."""
    return request.order >= BATCH_ORDER


def key_of(waiting: QueuedRequest) -> str:
    """Return the name of a request's API key; empty without one."""
    return waiting.request.caller.key if waiting.request.caller else ""


class PendingCall:
    """A call (load, unload) that waits for its answer."""

    __slots__ = ("abandoned", "number", "options", "order", "peer", "repeated", "spec")

    def __init__(
        self,
        peer: str,
        number: int,
        order: int,
        spec: ModelSpec | None = None,
        options: Mapping[str, OptionValue] | None = None,
        repeated: bool = False,
    ) -> None:
        """``peer`` waits under its ``number``. A load waits for this ``spec``, or for any if it is None.

        ``options``: what a load asked for while the model was not downloaded, so that there was no spec yet.
        ``repeated``: the server itself asks again, after a failure.
        """
        self.peer = peer
        self.number = number
        self.order = order
        self.spec = spec
        self.options = options or {}
        self.repeated = repeated
        self.abandoned = False
        """Whether its caller hung up: it gets no answer, but its request is still carried out."""


class SlotGrant:
    """Slots that one attempt holds. A read holds none, but still keeps the engine from being stopped."""

    __slots__ = (
        "began",
        "caller",
        "charged",
        "earlier",
        "facts",
        "gives_way",
        "more",
        "order",
        "origin",
        "prefixes",
        "progress",
        "since",
        "usual_weight",
        "weight",
    )

    def __init__(
        self,
        weight: int,
        usual_weight: int,
        began: float,
        order: int,
        caller: Caller | None = None,
        charged: float = 0.0,
        earlier: Outcome | None = None,
        origin: RequestOrigin = RequestOrigin(),  # noqa: B008 - a frozen value
        more: bool = False,
        facts: ShownRequest | None = None,
        since: float = 0.0,
        prefixes: tuple[int, ...] | None = None,
    ) -> None:
        """``weight`` slots since ``began``, for a request of this order of arrival, which came with or without a key.

        ``usual_weight``: the slots that it needs, fewer than it has if it is to run alone for a while.
        ``charged``: tokens that it was expected to use, if requests of other keys waited.  ``earlier``, ``more``: see
        :class:`~protocol.messages.work.SubmitRequest`.  ``facts``: of the request, which arrived at ``since``; None if
        only its worker knows it.  ``prefixes``: of its prompt.
        """
        self.prefixes = prefixes
        self.gives_way = False
        """Whether it is a batch's, and was ended for another request."""
        self.facts, self.since = facts, since
        self.earlier = earlier
        self.more = more
        self.origin = origin
        self.caller = caller
        self.charged = charged
        self.progress: AttemptProgress | None = None
        """How far the engine is, if it reports that."""
        self.weight = weight
        self.usual_weight = usual_weight
        self.began = began
        self.order = order
