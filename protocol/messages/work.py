"""Messages about inference requests on the control plane: ask, run, cancel, idle."""

from __future__ import annotations

from typing import Final

import msgspec

from protocol.failures import Code, Failure
from protocol.ids import RequestKey
from protocol.messages.caller import Caller
from protocol.messages.calls import Repetition, call_message
from protocol.messages.events import Outcome
from protocol.times import Age, IdleTime, Seconds
from protocol.wire.envelope import control_message
from protocol.wire.speech import SPEECH

ENGINE_STATE_ENDPOINTS: Final = frozenset({"slots", "props"})
"""Reads of an engine's properties and state. They are refused while the model is not loaded."""
BYTE_STREAMS: Final = frozenset({SPEECH})
"""Endpoints whose answers are bytes, not JSON: see ``EventKind.DELTA``. Their requests are always streamed."""


@control_message
class SubmitRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Gateway → supervisor: run this. The payload is the body, unless ``spool`` names a file that holds it.

    The body is a request in the internal format (OpenAI's). Its ``model`` is the name that the client used.
    """

    number: int
    attempt: int
    model: str
    """The name that the client used; empty: the last used model that serves the endpoint."""
    endpoint: str
    """``chat/completions``, ``completions``, ``embeddings``, ``rerank``, ``tokenize``, ``slots`` … A recipe's descriptor lists those of its models."""
    label: str
    weight: int = 1
    """Slots that it uses; 0 for a read, which the engine answers beside its generations."""
    size: int = 0
    """Bytes of the body."""
    stream: bool = False
    suspect: bool = False
    """Whether it was in an engine that died, so that it must run alone."""
    retry_reason: str = ""
    """For a second or later attempt: the failure code of the attempt before it."""
    spool: str = ""
    query: str = ""
    """What an endpoint needs besides the body, already validated (``slots``: ``GET``, ``save/0`` …)."""
    caller: Caller | None = None
    """None: the server has no keys."""
    age: Age | None = None
    """Since it arrived, if it is sent again to a supervisor that took over; None: it has just arrived."""
    download_refusal: str = ""
    """Why no download may start for it (for example, it comes from a page of a foreign origin); empty: one may."""
    ttl: IdleTime | None = None
    """That of its model from now on; None: leave as it is."""
    context: int = 0
    """The least context of its model, in tokens: a model with a smaller one is loaded again. 0: leave as it is."""
    reservation: int = 0
    """Number of the :class:`ReserveRequest` that counted it against its key's limits; 0: not counted yet."""
    admitted: bool = False
    """An earlier supervisor had admitted it, so its key's limits do not refuse it now."""
    earlier: Outcome | None = None
    """The cost of the pieces before it, if it is a later piece of a request with a long list that was already admitted and counted."""
    more: bool = False
    """Whether another piece follows its end. If the server ends, its engine is kept for that one."""
    after: int = 0
    """The number of the piece before it, if that had ``more``."""
    address: str = ""
    """The client's address, on a server without keys: deaths of engines count against it."""
    digest: str = ""
    """A digest of everything in the request that may kill an engine; a repetition has the same (``gateway/requests/request_digest.py``)."""
    via: list[str] = []
    """The lemonbus servers that have passed the request on, each by the id of its run, so that it does not go round in a circle."""
    dialect: str = ""
    """The API family of its route, to be shown."""
    batch: bool = False
    """Whether it is a line of a batch: it gets a slot only if no other request needs it, and gives it back to one that does."""


# The new supervisor has no reservation for the request, so it is counted when it comes.
@call_message(Repetition(survived=frozenset(Code)))
class ReserveRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call: refuse it as ``SubmitRequest`` would be, or count it against its key's limits → None.

    The call stays open. The request counts as running until its ``SubmitRequest`` has come, or the call is abandoned.
    The ``reserved_tokens`` of its caller may be a guess: its texts are not known yet.
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

    It is sent up to 50 ms later, together with others: a worker's events also name the worker, so only attempts without
    events need it. It is always sent before :class:`~protocol.messages.peers.WorkerGone`.
    """

    grants: list[GrantedAttempt]


@control_message
class Refused(msgspec.Struct, frozen=True):
    """Supervisor → gateway: the attempt (or, with ``attempt`` 0, the call) ends here."""

    number: int
    attempt: int
    failure: Failure


@control_message
class QueueStatus(msgspec.Struct, frozen=True):
    """Supervisor → gateway: the request has waited for a moment, and will be granted as the ``position``-th.

    ``wait_s``: seconds until then, estimated from the requests before it.
    """

    number: int
    attempt: int
    position: int
    wait_s: Seconds


@control_message
class Cancel(msgspec.Struct, frozen=True):
    """Gateway → supervisor → worker: the client no longer waits for the answer. Unknown attempts are ignored."""

    gateway: str
    number: int
    attempt: int
    reason: str


@control_message
class AnswerLost(msgspec.Struct, frozen=True, omit_defaults=True):
    """Gateway → supervisor: the worker of an attempt is gone, and its client gets an error.

    ``tokens``: what the client has got of a stream. An end that the worker had reported before counts no more.
    """

    model: str
    tokens: int
    caller: Caller | None = None
    number: int = 0
    attempt: int = 0


@control_message
class Run(msgspec.Struct, frozen=True, omit_defaults=True):
    """Supervisor → worker: the grant. Payload and ``spool`` as in :class:`SubmitRequest`."""

    gateway: str
    number: int
    attempt: int
    model: str
    """The name that the client used for the model; answers carry it."""
    endpoint: str
    label: str
    stream: bool = False
    spool: str = ""
    query: str = ""
    waited: Seconds = 0.0
    """How long the request waited for the grant."""
    weight: int = 1
    """The slots granted to it; 0 for a read."""
    api_key: str = ""
    """The name of the caller's API key, empty without keys: the report of its end names it."""
    more: bool = False
    """As in :class:`SubmitRequest`."""
    via: list[str] = []
    """As in :class:`SubmitRequest`."""


@control_message
class AttemptEnded(msgspec.Struct, frozen=True, omit_defaults=True):
    """Worker → supervisor: the engine has stopped working on this attempt; its grant is free.

    ``code`` is empty for a finished generation, else the failure's code. A finished read has no ``outcome``.

    It says all that is to be counted about the attempt, for whom and for which model. So a supervisor that takes over can
    count an end that its predecessor did not read.
    """

    gateway: str
    number: int
    attempt: int
    code: str = ""
    outcome: Outcome | None = None
    tokens: int = 0
    """Output tokens of an attempt without an outcome, up to its end."""
    prompt_tokens: int = 0
    """Tokens of its prompt, or an estimate. 0 if the engine did not get the prompt, or if the attempt is made again."""
    age: Age = 0.0
    """Since it ended: the message may have waited for others."""
    serial: int = 0
    """Its place among the ends that its worker has reported, from 1, so that none is counted twice; 0: there is nothing to count."""
    model: str = ""
    """The registered name of the worker's model."""
    api_key: str = ""
    """As in :class:`Run`."""
    seconds: Seconds = 0.0
    """How long the engine has worked on an attempt without an outcome."""
    more: bool = False
    """As in :class:`Run`: another piece of the same request follows."""

    @property
    def key(self) -> RequestKey:
        """The attempt."""
        return RequestKey(self.gateway, self.number, self.attempt)


@control_message
class AnswersReceived(msgspec.Struct, frozen=True):
    """Gateway → supervisor: this worker is gone. It may not have reported the ends of these answers, which were complete."""

    worker: str
    ends: list[AttemptEnded]


@control_message
class AttemptAbandoned(msgspec.Struct, frozen=True):
    """Worker → supervisor: the engine still works on this attempt, a while after its client stopped waiting.

    Its grant ends with ``AttemptEnded`` as always. But an engine that does nothing else need not be waited for.
    """

    gateway: str
    number: int
    attempt: int


@control_message
class AttemptProgress(msgspec.Struct, frozen=True):
    """Worker → supervisor, at most once a second: how far the engine is with an attempt.

    ``done`` of ``total`` in ``unit``: ``steps`` of a picture, ``%`` of a recording. ``label``: the request id.
    """

    gateway: str
    number: int
    attempt: int
    label: str
    done: int
    total: int
    unit: str


class RunningAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The output ``tokens`` so far of an attempt; ``age``: since the first of them."""

    gateway: str
    number: int
    attempt: int
    tokens: int
    age: Age

    @property
    def key(self) -> RequestKey:
        """The attempt."""
        return RequestKey(self.gateway, self.number, self.attempt)


@control_message
class AttemptsEnded(msgspec.Struct, frozen=True):
    """Worker → supervisor: several ends in one message, in their order."""

    ends: list[AttemptEnded]
