"""Messages about inference requests on the control plane: ask, run, cancel, idle."""

from __future__ import annotations

from typing import Final

import msgspec

from protocol.failures import Failure
from protocol.messages.events import Outcome
from protocol.wire.envelope import control_message

ENGINE_STATE_ENDPOINTS: Final = frozenset({"slots", "props"})
"""Reads of what an engine is or does now: they are refused while the model is not loaded."""


class Caller(msgspec.Struct, frozen=True, omit_defaults=True):
    """The API key that a request came with, by its name, and its limits: the supervisor counts, and knows no keys.

    ``max_tokens``: how many tokens this request may generate, as its client asked; 0: it did not say, or it does not matter.
    """

    key: str
    models: list[str] = []
    """Shell patterns of the registered names that it may use; empty: all models."""
    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    concurrent: int = 0
    max_tokens: int = 0

    @property
    def limited(self) -> bool:
        """Whether it has any limit."""
        return bool(self.requests_per_minute or self.tokens_per_minute or self.concurrent)


@control_message
class SubmitRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Gateway → supervisor: run this. The payload is the body, unless ``spool`` names a file that holds it.

    The body is a request in the internal format (OpenAI's), with what the client called the model in it.
    """

    number: int
    attempt: int
    model: str
    """The name that the client used; empty: the model used last that serves the endpoint."""
    endpoint: str
    """``chat/completions``, ``completions``, ``embeddings``, ``rerank``, ``tokenize``, ``slots`` … A recipe's descriptor says
    which ones its models serve."""
    label: str
    weight: int = 1
    """Slots it uses; 0 for a read, which the engine answers beside its generations."""
    size: int = 0
    """Bytes of the body."""
    stream: bool = False
    suspect: bool = False
    """It was in an engine when the engine died: it runs alone."""
    retry_reason: str = ""
    """Of a second or later attempt: the code of the failure that ended the one before."""
    spool: str = ""
    query: str = ""
    """What an endpoint needs besides the body, already validated (``slots``: ``GET``, ``save/0`` …)."""
    caller: Caller | None = None
    """None: the server has no keys."""
    since: float = 0.0
    """When the request arrived, by ``CLOCK_MONOTONIC``, if a supervisor that took over gets it again; 0: now."""
    download_refusal: str = ""
    """Why no download may begin for it (a page of a foreign origin, for example); empty: one may."""
    ttl: float | None = None
    """Unload its model after so many idle seconds, 0: as soon as it is idle, infinite: never; None: as it is."""
    context: int = 0
    """Tokens that its model's context is to have, for which a model that has fewer is loaded again; 0: as it is."""
    reservation: int = 0
    """Number of the :class:`ReserveRequest` that has counted it against the limits of its key; 0: nothing has."""
    admitted: bool = False
    """A supervisor that has ended had admitted it: the limits of its key do not refuse it now."""
    earlier: Outcome | None = None
    """It is a further piece of a request that was admitted and counted, one with a long list: what the pieces before it cost."""
    address: str = ""
    """The client's, on a server without keys: deaths of engines count against it."""
    digest: str = ""
    """Of what an engine may die of in the request: a repetition has the same one (``gateway/requests/request_digest.py``)."""


@control_message
class ReserveRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call: refuse what would be refused of a ``SubmitRequest`` with these fields, or count it against its key's limits → None.

    The call stays open. The request counts as one that runs until its ``SubmitRequest`` has come, or the call is abandoned.
    """

    number: int
    model: str
    endpoint: str
    caller: Caller | None = None
    download_refusal: str = ""


class GrantedAttempt(msgspec.Struct, frozen=True, array_like=True):
    """One attempt was sent to this worker; ``model`` is the registered name."""

    number: int
    attempt: int
    worker: str
    model: str


@control_message
class Granted(msgspec.Struct, frozen=True):
    """Supervisor → gateway: where attempts run.

    It comes up to 50 ms later and with others, because the events of a worker name the worker too: it is for attempts
    without events.  It is always sent before a :class:`~protocol.messages.peers.WorkerGone`.
    """

    grants: list[GrantedAttempt]


@control_message
class Refused(msgspec.Struct, frozen=True):
    """Supervisor → gateway: the attempt (or, with ``attempt`` 0, the call) ends here."""

    number: int
    attempt: int
    failure: Failure


class LimitStatus(msgspec.Struct, frozen=True, array_like=True):
    """One limit of a key: ``limit`` a minute, of which ``remaining`` are left; ``reset`` seconds until all are."""

    limit: int
    remaining: int
    reset: float


class RateLimits(msgspec.Struct, frozen=True, array_like=True):
    """The limits of a key; None where it has none."""

    requests: LimitStatus | None = None
    tokens: LimitStatus | None = None


@control_message
class KeyUsage(msgspec.Struct, frozen=True):
    """Supervisor → gateway, before a request of a key with limits is granted or refused: what the response's headers say."""

    number: int
    attempt: int
    limits: RateLimits


@control_message
class QueueStatus(msgspec.Struct, frozen=True):
    """Supervisor → gateway: the request has waited for a moment, and is the ``position``-th that will be granted.

    ``wait_s``: seconds until then, estimated from the requests before it.
    """

    number: int
    attempt: int
    position: int
    wait_s: float


@control_message
class Cancel(msgspec.Struct, frozen=True):
    """Gateway → supervisor → worker: no client waits for the answer any more. Unknown attempts are ignored."""

    gateway: str
    number: int
    attempt: int
    reason: str


@control_message
class AnswerLost(msgspec.Struct, frozen=True, omit_defaults=True):
    """Gateway → supervisor: the worker of a stream is gone, and cannot report the ``tokens`` that were sent before."""

    model: str
    tokens: int
    caller: Caller | None = None


@control_message
class Run(msgspec.Struct, frozen=True, omit_defaults=True):
    """Supervisor → worker: the grant. Payload and ``spool`` as in :class:`SubmitRequest`."""

    gateway: str
    number: int
    attempt: int
    model: str
    """The name that the client used for the model: answers carry it."""
    endpoint: str
    label: str
    stream: bool = False
    spool: str = ""
    query: str = ""
    waited: float = 0.0
    """Seconds for which the request waited for the grant."""
    weight: int = 1
    """The slots that it is granted; 0 for a read."""


@control_message
class AttemptEnded(msgspec.Struct, frozen=True, omit_defaults=True):
    """Worker → supervisor: the engine has stopped working on this attempt; its grant is free.

    ``code`` is empty for a generation that ended, else the failure's code.  A read that ended has no ``outcome``.
    """

    gateway: str
    number: int
    attempt: int
    code: str = ""
    outcome: Outcome | None = None
    tokens: int = 0
    """Output tokens of an attempt without an outcome, as far as it came."""
    at: float = 0.0
    """When it ended, by ``CLOCK_MONOTONIC``, which all processes of a machine share; 0: when this arrives."""


@control_message
class AttemptAbandoned(msgspec.Struct, frozen=True):
    """Worker → supervisor: no client waits for this attempt any more, and the engine still works on it after a while.

    Its grant ends with ``AttemptEnded`` as always; but an engine that only does this need not be waited for.
    """

    gateway: str
    number: int
    attempt: int


@control_message
class AttemptProgress(msgspec.Struct, frozen=True):
    """Worker → supervisor, once a second at most: how far the engine is with an attempt.

    ``done`` of ``total`` in ``unit``: ``steps`` of a picture, ``%`` of a recording. ``label``: the request id.
    """

    gateway: str
    number: int
    attempt: int
    label: str
    done: int
    total: int
    unit: str


@control_message
class AttemptsEnded(msgspec.Struct, frozen=True):
    """Worker → supervisor: several ends together, in their order."""

    ends: list[AttemptEnded]
