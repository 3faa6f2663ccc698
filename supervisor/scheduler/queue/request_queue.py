"""The requests that wait for one model, by arrival and by API key.

Thousands may wait, and each step of the scheduler looks. Pure.
"""

from __future__ import annotations

import bisect
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence

from protocol.ids import RequestKey
from supervisor.scheduler.queue.work_items import QueuedRequest, is_of_batch, key_of


def _ignore(_: QueuedRequest) -> None:
    pass


class RequestQueue:
    """The waiting requests of a model. Iterating yields them in the order of arrival."""

    def __init__(
        self,
        added: Callable[[QueuedRequest], None] = _ignore,
        removed: Callable[[QueuedRequest], None] = _ignore,
    ) -> None:
        """Nothing waits. ``added``, ``removed``: called when a request begins to wait, or no longer does."""
        self._added, self._removed = added, removed
        self._requests: dict[RequestKey, QueuedRequest] = {}
        self._by_key: dict[str, list[QueuedRequest]] = {}
        """API key → its requests in the order of arrival. A key without requests is not in it."""
        self._unannounced: deque[QueuedRequest] = deque()
        """In the order in which they began to wait; some may no longer wait."""
        self.bytes = 0
        """The sizes of all request bodies."""
        self._bytes_of: Counter[str] = Counter()
        self.reads = 0
        """How many need no slot."""

    def __len__(self) -> int:
        """Return how many requests wait."""
        return len(self._requests)

    def __iter__(self) -> Iterator[QueuedRequest]:
        """Yield what waits now, in the order of arrival."""
        return iter(sorted(self._requests.values(), key=_order))

    def add(self, waiting: QueuedRequest) -> None:
        """Let a request wait behind those that arrived before it."""
        self._requests[waiting.key] = waiting
        bisect.insort(self._by_key.setdefault(key_of(waiting), []), waiting, key=_order)
        self._unannounced.append(waiting)
        self.bytes += waiting.request.size
        self._bytes_of[key_of(waiting)] += waiting.request.size
        self.reads += waiting.is_read
        self._added(waiting)

    def has(self, key: RequestKey) -> bool:
        """Return whether a request waits."""
        return key in self._requests

    def remove(self, key: RequestKey) -> bool:
        """Take a request out; return whether it was there."""
        waiting = self._requests.pop(key, None)
        if waiting is None:
            return False
        own = self._by_key[key_of(waiting)]
        del own[bisect.bisect_left(own, waiting.order, key=_order)]
        self.bytes -= waiting.request.size
        self._bytes_of[key_of(waiting)] -= waiting.request.size
        if not own:
            del self._by_key[key_of(waiting)], self._bytes_of[key_of(waiting)]
        self.reads -= waiting.is_read
        self._removed(waiting)
        return True

    @property
    def first_order(self) -> int:
        """The earliest arrival of a waiting request."""
        return min(own[0].order for own in self._by_key.values())

    @property
    def first_since(self) -> float:
        """Since when the request waits that has waited longest."""
        return min(own[0].since for own in self._by_key.values())

    @property
    def by_key(self) -> Mapping[str, Sequence[QueuedRequest]]:
        """API key → its requests in the order of arrival, longest-waiting key first."""
        return dict(sorted(self._by_key.items(), key=lambda item: item[1][0].order))

    def count_of(self, api_key: str) -> int:
        """Return how many requests of an API key wait; an empty name stands for requests without a key."""
        return len(self._by_key.get(api_key, ()))

    def bytes_of(self, api_key: str) -> int:
        """Return the total size of the bodies of an API key's waiting requests."""
        return self._bytes_of[api_key]

    def heads(self, before: int) -> dict[str, QueuedRequest]:
        """Return the first request of each API key that needs slots and came before the order ``before``.

        Lines of batches are among them only if nothing else is.
        """
        found = {}
        for key, own in self.by_key.items():
            first = own[0] if not own[0].is_read else next((each for each in own if not each.is_read), None)
            if first is not None and first.order < before:
                found[key] = first
        if len(found) < 2:
            return found
        return {key: first for key, first in found.items() if not is_of_batch(first)} or found

    @property
    def unannounced_since(self) -> float | None:
        """Since when the first request waits that :meth:`take_unannounced` has not returned; None if there is none."""
        while self._unannounced and not self._waits(self._unannounced[0]):
            self._unannounced.popleft()
        return self._unannounced[0].since if self._unannounced else None

    def take_unannounced(self, since: float) -> set[RequestKey]:
        """Return what has waited since ``since`` or longer and was not returned before."""
        due = set()
        while self._unannounced and (self._unannounced[0].since <= since or not self._waits(self._unannounced[0])):
            waiting = self._unannounced.popleft()
            if self._waits(waiting):
                due.add(waiting.key)
        return due

    def _waits(self, waiting: QueuedRequest) -> bool:
        return self._requests.get(waiting.key) is waiting


def _order(waiting: QueuedRequest) -> int:
    return waiting.order
