"""Whose file is decoded next: clients take turns, and one client never has all decoders of a gateway. Pure."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

Begin = Callable[[], None]


class DecodingTurns:
    """Counts the decoders that work, by client, and begins what waits."""

    def __init__(self, most: int, most_of_client: int) -> None:
        """``most`` files are decoded at once, and ``most_of_client`` of one client."""
        self._most, self._most_of_client = most, most_of_client
        self._working: Counter[str] = Counter()
        self._waiting: dict[str, deque[Begin]] = {}
        """Those that had a turn last are at the end."""

    def wait(self, client: str, begin: Begin) -> None:
        """Call ``begin`` when it is this file's turn, now or later."""
        self._waiting.setdefault(client, deque()).append(begin)
        self._begin_due()

    def end(self, client: str, begin: Begin) -> None:
        """End a file's turn, or its wait for one."""
        queue = self._waiting.get(client, deque())
        if begin not in queue:
            self._working -= Counter([client])
        else:
            queue.remove(begin)
            if not queue:
                del self._waiting[client]
        self._begin_due()

    def _begin_due(self) -> None:
        while self._waiting and self._working.total() < self._most:
            client = min(self._waiting, key=self._working.__getitem__)
            if self._working[client] >= self._most_of_client:
                return
            self._working[client] += 1
            queue = self._waiting.pop(client)
            begin = queue.popleft()
            if queue:
                self._waiting[client] = queue
            begin()
