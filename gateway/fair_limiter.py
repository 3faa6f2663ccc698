"""Limits how much work of one kind a gateway does at once. Clients take turns, so none waits for all of another's requests."""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import Callable, Iterator

from gevent.event import Event

Begin = Callable[[], None]


class FairLimiter:
    """Counts the pieces of work in progress, by client, and begins waiting ones. Pure, except for :meth:`turn`."""

    def __init__(self, most: int, most_of_client: int) -> None:
        """At most ``most`` pieces of work are in progress at once, and ``most_of_client`` of one client."""
        self._most, self._most_of_client = most, most_of_client
        self._working: Counter[str] = Counter()
        self._waiting: dict[str, deque[Begin]] = {}
        """Clients that had a turn last are at the end."""

    @contextlib.contextmanager
    def turn(self, client: str) -> Iterator[None]:
        """Let the present greenlet wait for its client's turn, which lasts for the block."""
        woken = Event()
        begin = woken.set
        self.wait(client, begin)
        try:
            woken.wait()
            yield
        finally:
            self.end(client, begin)

    def wait(self, client: str, begin: Begin) -> None:
        """Call ``begin`` when it is this piece of work's turn, now or later."""
        self._waiting.setdefault(client, deque()).append(begin)
        self._begin_due()

    def end(self, client: str, begin: Begin) -> None:
        """End the turn of a piece of work, or its wait for one."""
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
