"""Which sender of a file is asked next, when it has failed often enough, and what its failure is called."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from urllib3.exceptions import HTTPError

from protocol.messages.model_transfer import FileSender
from workers.jobs.errors import SourceError

PATIENCE_S: Final = 30.0
"""How long no sender may give a byte before the transfer fails."""
OTHER_BYTES: Final = "it sent other bytes (their sha256 is not that of the file)"


class SendersError(SourceError):
    """No sender has given the whole file. Another way to get it may help."""


class NotSentError(Exception):
    """A sender answered, but not with the file."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.changed = status == 410

    def __str__(self) -> str:
        return "the file has changed there" if self.changed else f"it answered with {self.args[0]}"


class SenderRounds:
    """The attempts to get one file: the same sender as long as it makes progress, then the others in their order."""

    def __init__(
        self,
        senders: Callable[[], list[FileSender]],
        progress: Callable[[], int],
        wait: Callable[[], object],
        patience: float,
    ) -> None:
        """``progress`` returns what grows with each success. ``wait`` is called before all senders are asked again."""
        self._senders, self._progress, self._wait, self._patience = senders, progress, wait, patience
        self._next = 0
        self._since = time.monotonic()
        self._reached = progress()
        self._problems: dict[str, Exception] = {}

    @contextmanager
    def next(self) -> Iterator[FileSender]:
        """Yield the sender to ask. Its failure counts, and the next one comes; raises :class:`SendersError` when none helps."""
        while self._next >= len(senders := self._senders()):
            if self._is_late:
                raise SendersError("no node that has the files can be reached")
            self._wait()
            self._next = 0
        sender = senders[self._next]
        try:
            yield sender
        except (HTTPError, NotSentError) as problem:
            self._failed(sender, problem)

    @property
    def _is_late(self) -> bool:
        return time.monotonic() - self._since > self._patience

    def _failed(self, sender: FileSender, problem: Exception) -> None:
        reached = self._progress()
        if reached > self._reached:
            self._reached, self._since = reached, time.monotonic()
            self._problems.clear()
            return
        self._problems[sender.node] = problem
        self._next += 1
        everywhere = set(self._problems) >= {each.node for each in self._senders()}
        changed = everywhere and all(
            isinstance(each, NotSentError) and each.changed for each in self._problems.values()
        )
        if changed or self._is_late:
            reasons = "; ".join(f"{node}: {_in_words(each)}" for node, each in self._problems.items())
            detail = "; ".join(f"{node}: {each!r}" for node, each in self._problems.items())
            raise SendersError(reasons, detail) from problem


def _in_words(problem: Exception) -> str:
    return str(problem) if isinstance(problem, NotSentError) else "it cannot be reached"
