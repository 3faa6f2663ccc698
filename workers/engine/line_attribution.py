"""Which request a line of an engine's output belongs to, if known: only if a single request runs or has just ended.

The output is read in batches (``output_reader.py``).  It is also read at once:

* before a request begins, if there is at most one other;
* before one of two requests ends;
* after the only request has ended and its answer has left, unless another request has begun since.

Among three or more requests, a line belongs to none, whenever it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from protocol.runtime.loop import Callback

LATE_LINE_S: Final = 0.05
"""An engine answers a request first, and prints what was wrong with it afterwards."""


class LineAttribution:
    """Returns the id of the request that a line belongs to if it is read now."""

    def __init__(
        self, attempts: Mapping[Any, Any], clock: Callable[[], float], call_last: Callable[[Callback], None]
    ) -> None:
        """``attempts``: all of :class:`~workers.requests.attempt.Attempt` that run, wait or are about to end.

        ``call_last`` calls back after the answers of this iteration of the loop have left.
        """
        self._attempts, self._clock, self._call_last = attempts, clock, call_last
        self._last_label = ""
        self._last_until = 0.0
        self._left_one_until = 0.0
        """Until then, a line may belong to the only running request, or to one that ended while it ran."""
        self._unread = False
        """Whether the engine's output up to the end of the last request has not been read yet."""
        self.read_output: Callback = lambda: None
        """Reads what the engine wrote so far."""

    def before_start(self) -> None:
        """Take note that another request is about to begin."""
        if len(self._attempts) < 2:
            self.read_output()
            self._unread = False

    def before_end(self, label: str) -> None:
        """Note that a request is about to end. If two ran together and end, a later line belongs to neither."""
        now = self._clock()
        if len(self._attempts) == 2:
            self.read_output()
            self._left_one_until = now + LATE_LINE_S
        elif len(self._attempts) == 1:
            self._last_label = label if now >= self._left_one_until else ""
            self._unread = True
            self._call_last(self._read_after_end)

    def _read_after_end(self) -> None:
        if self._unread and not self._attempts:
            self.read_output()
            self._unread = False
            self._last_until = self._clock() + LATE_LINE_S

    def __call__(self) -> str:
        """Return the id of the only running or just ended request; empty if there is none, or several are possible.

        A request that begins after another has ended counts as alone: what the other one caused was read before.
        """
        if len(self._attempts) > 1:
            return ""
        now = self._clock()
        for attempt in self._attempts.values():
            return "" if now < self._left_one_until else str(attempt.run.label)
        return self._last_label if self._unread or now < self._last_until else ""
