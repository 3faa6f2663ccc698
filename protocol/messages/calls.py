"""Calls: what a gateway asks the supervisor besides inference. The calls themselves are in other files, by subject.

Each call carries a ``number`` that the gateway chose. The answer is :class:`CallResult` with the report as payload, or
:class:`~protocol.messages.work.Refused` with ``attempt`` 0.

A supervisor that dies may have carried out a call whose answer is lost. If doing the call twice gives the caller the
same answer, it is repeated when another supervisor takes over. Any other call is answered with ``outcome_unknown``.
Each call declares this with :func:`call_message`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from protocol.failures import Code
from protocol.wire.envelope import M, control_message


class Repetition(NamedTuple):
    """What to do with one kind of call when its supervisor has died."""

    repeated: bool = True
    change: Callable[[Any], msgspec.Struct] | None = None
    """Makes the message for the repetition, if it differs from the first one."""
    done: Mapping[Code, Callable[[Any], Any]] = {}
    """Refusals that show that the first message had its effect. They are answered with the report that this makes."""
    replaced: Callable[[], Any] | None = None
    """Makes the report when the new supervisor speaks another version, so that this process cannot ask it.

    Without it, the caller is told to repeat the call.
    """
    survived: frozenset[Code] = frozenset()
    """Refusals that do not end a call if the first supervisor had answered it and it still runs."""


REPETITIONS: Final[dict[type[msgspec.Struct], Repetition]] = {}
"""Every call that a gateway makes."""


def call_message(repetition: Repetition) -> Callable[[type[M]], type[M]]:
    """Class decorator: register a call as :func:`~protocol.wire.envelope.control_message` does, and whether it is repeated."""

    def registered(cls: type[M]) -> type[M]:
        REPETITIONS[cls] = repetition
        return control_message(cls)

    return registered


repeated_call = call_message(Repetition())
"""Class decorator: a call that may be made twice."""


def no_report(_call: Any) -> None:
    """Return the report of a call that has none."""


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
