"""What the scheduler finds without a look at all models: where an attempt waits or runs, and what each API key has open. Pure.

Nothing here is known only here. Models and queues keep it up to date whenever one of their own attempts begins or ends, so
that an event costs the same however many models there are.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from protocol.ids import RequestKey
from protocol.messages.caller import Caller

if TYPE_CHECKING:  # models know their index
    from supervisor.scheduler.queue.work_items import QueuedRequest, SlotGrant
    from supervisor.scheduler.replica_set import ReplicaSet
    from supervisor.scheduler.scheduled_model import ScheduledModel


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
    """Where attempts are, by their keys, and what is open, by API key."""

    def __init__(self) -> None:
        """Nothing waits or runs."""
        self.running: dict[RequestKey, ScheduledModel] = {}
        self.waiting: dict[RequestKey, ReplicaSet] = {}
        self.lists: dict[tuple[str, int], dict[RequestKey, ScheduledModel]] = {}
        """(gateway, number) of pieces of long lists after which another one comes → where their attempts run or have ended."""
        self._of_key: dict[str, OpenRequests] = {}

    def of_key(self, key: str) -> OpenRequests:
        """Return what an API key has open, to be read only."""
        return self._of_key.get(key) or OpenRequests()

    def queued(self, replica_set: ReplicaSet, waiting: QueuedRequest) -> None:
        """A request begins to wait."""
        self.waiting[waiting.key] = replica_set
        self._open(waiting.request.caller)

    def unqueued(self, waiting: QueuedRequest) -> None:
        """A request waits no longer."""
        self.waiting.pop(waiting.key, None)
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
