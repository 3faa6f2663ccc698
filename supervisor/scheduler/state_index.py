"""What the scheduler finds without a look at all models, so that an event costs the same however many there are. Pure.

It is where an attempt waits or runs, what each API key has open, and which models are to be looked at: those that have changed
since the last look, and those for which it is time. Nothing here is known only here: models and queues keep it up to date.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from protocol.ids import RequestKey
from protocol.messages.caller import Caller

if TYPE_CHECKING:  # models know their index
    from supervisor.scheduler.queue.work_items import QueuedRequest, SlotGrant
    from supervisor.scheduler.replica_set import ReplicaSet
    from supervisor.scheduler.scheduled_model import ScheduledModel


NEVER_DUE: Final = math.inf


class OpenRequests:
    """The requests of one API key that wait or run; a long list also between two of its pieces."""

    __slots__ = ("requests", "running_on", "tokens")

    def __init__(self) -> None:
        """Nothing is open."""
        self.requests = 0
        self.tokens = 0
        """That they reserve."""
        self.running_on: Counter[ScheduledModel] = Counter()
        """Model → how many of them its engine works on."""


class StateIndex:
    """Where attempts are, what is open by API key, and which models are to be looked at."""

    def __init__(self) -> None:
        """Nothing waits or runs."""
        self.changed: dict[str, ReplicaSet] = {}
        """The models that have changed since they were looked at last, by name."""
        self.restless: set[ScheduledModel] = set()
        """Those that waited or moved when they were looked at last."""
        self.unused: set[ScheduledModel] = set()
        """Those of which nothing was left then, except the memory of their failures."""
        self.serials = itertools.count(1)
        """The order in which models were added."""
        self._timers: list[tuple[float, int, ReplicaSet]] = []
        """A heap of the times at which a model is to be looked at, with some that no longer hold."""
        self.running: dict[RequestKey, ScheduledModel] = {}
        self.waiting: dict[RequestKey, ReplicaSet] = {}
        self.lists: dict[tuple[str, int], dict[RequestKey, ScheduledModel]] = {}
        """(gateway, number) of pieces of long lists after which another one comes → where their attempts run or have ended."""
        self._of_key: dict[str, OpenRequests] = {}

    # Models to be looked at

    @contextmanager
    def due(self, now: float) -> Iterator[list[ReplicaSet]]:
        """Give the models that are to be looked at, the first ones added first. If the look fails, they are due again."""
        while self._timers and self._timers[0][0] <= now:
            at, _, one = heapq.heappop(self._timers)
            if one.wake_at == at:
                one.wake_at = NEVER_DUE
                one.changed()
        due, self.changed = self.changed, {}
        try:
            yield sorted(due.values(), key=_serial)
        except BaseException:
            self.changed = {**due, **self.changed}
            raise

    def look_again(self, one: ReplicaSet, at: float) -> None:
        """Look at a model at a time, whatever happens until then. This replaces what was said of it before."""
        if one.wake_at != at:
            one.wake_at = at
            if at < NEVER_DUE:
                heapq.heappush(self._timers, (at, one.serial, one))

    def note_rest(self, model: ScheduledModel, *, waits_or_moves: bool) -> None:
        """A model was looked at."""
        (self.restless.add if waits_or_moves else self.restless.discard)(model)
        (self.unused.add if model.unused() else self.unused.discard)(model)

    def forget(self, model: ScheduledModel) -> None:
        """Nothing is left of an engine."""
        self.restless.discard(model)
        self.unused.discard(model)

    def with_changed(self, some: Iterable[ReplicaSet]) -> list[ReplicaSet]:
        """Return these models and those that have changed, the first ones added first."""
        return sorted({one.name: one for one in (*some, *self.changed.values())}.values(), key=_serial)

    # Attempts

    def of_key(self, key: str) -> OpenRequests:
        """Return what an API key has open, to be read only."""
        return self._of_key.get(key) or OpenRequests()

    def queued(self, replica_set: ReplicaSet, waiting: QueuedRequest) -> None:
        """A request begins to wait."""
        self.waiting[waiting.key] = replica_set
        self._open(waiting.request.caller)

    def unqueued(self, replica_set: ReplicaSet, waiting: QueuedRequest) -> None:
        """A request waits no longer."""
        self.waiting.pop(waiting.key, None)
        replica_set.changed()
        self._close(waiting.request.caller)

    def granted(self, model: ScheduledModel, key: RequestKey, grant: SlotGrant) -> None:
        """An attempt gets its slots."""
        self.running[key] = model
        self._open(grant.caller, model)
        if grant.more:
            self.lists.setdefault((key.gateway, key.number), {})[key] = model

    def ended(self, model: ScheduledModel, key: RequestKey, grant: SlotGrant) -> None:
        """An attempt has lost its slots."""
        self.running.pop(key, None)
        self._close(grant.caller, model)
        self.forget_piece(key)

    def paused(self, model: ScheduledModel, key: RequestKey, caller: Caller | None) -> None:
        """A piece of a long list has ended, and the next one is still to come."""
        self.lists.setdefault((key.gateway, key.number), {})[key] = model
        self._open(caller)

    def continued(self, caller: Caller | None) -> None:
        """The piece after one that has ended has come, or never will."""
        self._close(caller)

    def forget_piece(self, key: RequestKey) -> None:
        """No other piece is expected after this attempt."""
        attempts = self.lists.get((key.gateway, key.number)) if self.lists else None
        if attempts is not None and attempts.pop(key, None) is not None and not attempts:
            del self.lists[key.gateway, key.number]

    def _open(self, caller: Caller | None, model: ScheduledModel | None = None) -> None:
        if caller is not None:
            its = self._of_key.setdefault(caller.key, OpenRequests())
            its.requests += 1
            its.tokens += caller.reserved_tokens
            if model is not None:
                its.running_on[model] += 1

    def _close(self, caller: Caller | None, model: ScheduledModel | None = None) -> None:
        if caller is not None:
            its = self._of_key[caller.key]
            its.requests -= 1
            its.tokens -= caller.reserved_tokens
            if model is not None:
                its.running_on[model] -= 1
                if not its.running_on[model]:
                    del its.running_on[model]
            if not its.requests:
                del self._of_key[caller.key]


def _serial(one: ReplicaSet) -> int:
    return one.serial
