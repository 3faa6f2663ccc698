"""What the scheduler wants done. It only says so; the house does it."""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec import Struct

from protocol.messages.work import GrantedAttempt


class SendMessage(NamedTuple):
    """Send a control message to a peer."""

    peer: str
    message: Struct
    payload: bytes = b""


class NotifyGrant(NamedTuple):
    """Let a gateway know where an attempt runs, soon."""

    gateway: str
    grant: GrantedAttempt


class AnswerCall(NamedTuple):
    """Answer a call with a report."""

    peer: str
    number: int
    report: object


class SpawnWorker(NamedTuple):
    """Start a worker process under this id; it comes back as a spare with Hello."""

    worker: str


class KillWorker(NamedTuple):
    """End a worker process at once, with all that is in its session."""

    worker: str


class KillAfter(NamedTuple):
    """The worker was told to leave: kill it if it is still there after ``seconds``."""

    worker: str
    seconds: float


class FetchModel(NamedTuple):
    """The model is in the catalogue but not on this machine: download it."""

    model: str


class ForgetModel(NamedTuple):
    """The model was only known because of a load, which failed: it is not known any more."""

    model: str


class LogDecision(NamedTuple):
    """Log something that was decided."""

    level: str
    event: str
    fields: dict[str, Any]


Effect = (
    SendMessage
    | NotifyGrant
    | AnswerCall
    | SpawnWorker
    | KillWorker
    | KillAfter
    | FetchModel
    | ForgetModel
    | LogDecision
)
