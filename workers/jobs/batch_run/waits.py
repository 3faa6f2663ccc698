"""Which batches wait, and when the log says so: for a new reason, not for each refusal. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

LOG_PAUSE_S: Final = 60.0
"""Of one batch, the log has a reason at most this often: many batches wait and run by turns."""
RUNS_S: Final = 2.0
"""A request that is at the server for this long was not refused: it runs, or has its model loaded."""
_DIGITS: Final = re.compile(r"\d+")


class WaitLog:
    """What the log has."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._logged: dict[str, tuple[str, float]] = {}
        """Batch → what was logged last, and when."""
        self._waited: dict[str, float] = {}
        """Batch → when it last waited."""

    def news(self, reasons: Mapping[str, str], now: float) -> list[str]:
        """Return the batches of which the log is to have the reason; ``reasons``: of all batches that wait now."""
        found = []
        for batch, reason in reasons.items():
            self._waited[batch] = now
            same = _DIGITS.sub("", reason)  # a number in it is mostly a time, which changes
            last, at = self._logged.get(batch, ("", now - LOG_PAUSE_S))
            if last != same and now - at >= LOG_PAUSE_S:
                self._logged[batch] = same, now
                found.append(batch)
        for batch in [batch for batch, at in self._waited.items() if now - at >= LOG_PAUSE_S]:
            del self._waited[batch]
            self._logged.pop(batch, None)
        return found
