"""Batches: what gateways tell the supervisor about them, and the messages of the job that works them off.

The batches themselves are on the disk (``protocol/batches``): no message carries a request or a result of one.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from protocol.messages.calls import repeated_call
from protocol.wire.envelope import control_message


@repeated_call
class BatchesChanged(msgspec.Struct, frozen=True):
    """A batch was made or cancelled: let the job look → None."""

    number: int


@control_message
class WorkOffBatches(msgspec.Struct, frozen=True):
    """Supervisor → job: work off the batches in the state directory; while it does, look again now."""


class BatchFigures(msgspec.Struct, frozen=True):
    """What a job has done so far."""

    open: Mapping[str, int]
    """State → batches in it that have not ended."""
    finished: Mapping[str, int]
    """State → batches that this job has brought to it."""
    lines: Mapping[str, int]
    """``succeeded``, ``failed`` → lines with such a result."""


@control_message
class BatchesProgressed(msgspec.Struct, frozen=True):
    """Job → supervisor, at most once a second."""

    figures: BatchFigures


@control_message
class BatchesDone(msgspec.Struct, frozen=True):
    """Job → supervisor: no batch is left."""

    figures: BatchFigures
