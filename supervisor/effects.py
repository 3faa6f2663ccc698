"""What the scheduler wants done. It only says so; the house does it."""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec import Struct

from protocol.work import Grant


class Send(NamedTuple):
    """Send a control message to a peer."""

    peer: str
    message: Struct
    payload: bytes = b""


class Tell(NamedTuple):
    """Let a gateway know where an attempt runs, soon."""

    gateway: str
    grant: Grant


class Report(NamedTuple):
    """Answer a call with a report."""

    peer: str
    number: int
    report: object


class Spawn(NamedTuple):
    """Start a worker process under this id; it comes back as a spare with Hello."""

    worker: str


class Kill(NamedTuple):
    """End a worker process at once, with all that is in its session."""

    worker: str


class Expect(NamedTuple):
    """The worker was told to leave: kill it if it is still there after ``seconds``."""

    worker: str
    seconds: float


class Fetch(NamedTuple):
    """The model is in the catalogue but not on this machine: download it."""

    model: str


class Note(NamedTuple):
    """Log something that was decided."""

    level: str
    event: str
    fields: dict[str, Any]


Effect = Send | Tell | Report | Spawn | Kill | Expect | Fetch | Note
