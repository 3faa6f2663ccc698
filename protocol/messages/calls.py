"""Calls: what a gateway asks the supervisor besides inference. The calls themselves are in other files, by subject.

Each call carries a ``number`` that the gateway chose. The answer is :class:`CallResult` with the report as payload, or
:class:`~protocol.messages.work.Refused` with ``attempt`` 0.
"""

from __future__ import annotations

import msgspec

from protocol.wire.envelope import control_message


@control_message
class CallResult(msgspec.Struct, frozen=True):
    """Supervisor → gateway: the call succeeded; the payload is its report."""

    number: int


@control_message
class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """Job → supervisor → gateways that wait for it: the progress of a download. Sizes in bytes.

    ``number`` is that of the waiting call when sent to a gateway, and 0 when sent by a job.
    """

    number: int
    model: str
    file: str
    file_index: int
    total_files: int
    bytes_downloaded: int
    bytes_total: int

    @property
    def percent(self) -> int:
        """Whole percent of this file."""
        return 100 * self.bytes_downloaded // self.bytes_total if self.bytes_total else 0


@control_message
class AbandonCall(msgspec.Struct, frozen=True):
    """The client of a call hung up and expects no answer. What was begun goes on."""

    number: int
