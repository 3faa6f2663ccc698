"""What the scheduler wants done. :class:`supervisor.runtime.effect_executor.EffectExecutor` does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from protocol.failures import Failure
from protocol.messages.work import GrantedAttempt
from protocol.models.nodes import HEAD
from protocol.models.recipes import ModelSpec


class SendMessage(NamedTuple):
    """Send a control message to a peer."""

    peer: str
    message: Struct
    payload: bytes = b""


class NotifyGrant(NamedTuple):
    """Tell a gateway where an attempt runs; a few milliseconds later is soon enough."""

    gateway: str
    grant: GrantedAttempt


class AnswerCall(NamedTuple):
    """Answer a call with a report."""

    peer: str
    number: int
    report: object
    after: str = ""
    """A worker that must first have read everything sent to it; empty: answer at once."""


class SpawnWorker(NamedTuple):
    """Start a worker process under this id, on this node. It reports with Hello."""

    worker: str
    node: str = HEAD


class KillWorker(NamedTuple):
    """End a worker process at once, with all processes of its session."""

    worker: str


class KillAfter(NamedTuple):
    """Kill a worker that was told to stop, if it still runs after ``seconds``."""

    worker: str
    seconds: float


class FetchModel(NamedTuple):
    """Download a model of the catalogue that is not on this machine."""

    model: str


class FetchFiles(NamedTuple):
    """Bring the files of a model to a node that lacks them. :meth:`Scheduler.files_fetched` says how that has ended."""

    model: str
    spec: ModelSpec
    node: str


class RequestResources(NamedTuple):
    """Ask the cluster engine for nodes that can take these: what waiting models need and no node can give.

    Each: ``CPU``, ``GPU``, ``memory`` in bytes or a custom resource → amount. These replace those of the last request.
    """

    bundles: Sequence[Mapping[str, float]]


class ForgetModel(NamedTuple):
    """Forget a model that was only known because of a failed load."""

    model: str


class NoteDeath(NamedTuple):
    """Remember how the engine of a model, or its worker, has died."""

    model: str
    failure: Failure


class LogDecision(NamedTuple):
    """Write a line to the log."""

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
    | FetchFiles
    | RequestResources
    | ForgetModel
    | NoteDeath
    | LogDecision
)
