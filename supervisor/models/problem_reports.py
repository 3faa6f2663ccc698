"""What is wrong in files and directories of models; each problem is reported once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

MAX_REMEMBERED: Final = 1000
"""How many problems are remembered, so that none is reported twice. Beyond it, all are forgotten."""


class ProblemSource(Protocol):
    """A file or directory that was read."""

    problems: list[str]


class ProblemReports:
    """Collects the problems of sources, as lines for the log."""

    def __init__(self) -> None:
        """Know of none."""
        self.lines: list[str] = []
        """Problems that are not logged yet. The reader of this list empties it."""
        self._reported: set[str] = set()

    def add(self, problems: Iterable[str]) -> None:
        """Take the problems that were not reported before."""
        fresh = [problem for problem in problems if problem not in self._reported]
        if len(self._reported) > MAX_REMEMBERED:
            self._reported.clear()
        self._reported.update(fresh)
        self.lines += fresh

    def collect(self, *sources: ProblemSource) -> None:
        """Take the problems of sources, and empty their lists."""
        for source in sources:
            self.add(source.problems)
            source.problems.clear()
