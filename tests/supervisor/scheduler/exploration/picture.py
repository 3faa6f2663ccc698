"""What a small world looks like: all that decides what happens later, so that equal worlds need to be looked at only once.

Whatever is found in the objects is part of the picture, also what is added to them in the future, except what
:data:`LEFT_OUT` names. Worlds that differ only in the following have the same picture:

- the ids of workers: they are numbered, on each node, in the order in which they were started;
- the numbers of arrivals, requests and calls: only their order counts;
- the time: it counts how long ago something was, and of what has happened at about the same time, what was first.
"""

from __future__ import annotations

import enum
import itertools
import marshal
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache, partial
from hashlib import blake2b
from types import BuiltinMethodType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from protocol.ids import RequestKey
from supervisor.scheduler.due_queue import DueQueue
from supervisor.scheduler.loads.assignment import LAST_ORDER
from supervisor.scheduler.memory.known_memory import KnownMemory
from supervisor.scheduler.replicas.replica_set import ReplicaSet
from supervisor.scheduler.scheduled_model import ScheduledModel
from supervisor.scheduler.scheduled_worker import ScheduledWorker
from supervisor.scheduler.scheduler_node import SchedulerNode
from supervisor.scheduler.state import SchedulerState
from tests.supervisor.scheduler.exploration.snapshots import SHARED

if TYPE_CHECKING:  # a world makes its picture
    from tests.supervisor.scheduler.exploration.small_worlds import SmallWorld

LEFT_OUT: Final[dict[str, frozenset[str]]] = {
    "SmallWorld": frozenset(
        {
            *("notes", "reports", "refusals", "ended", "order", "fetches", "forgotten", "deaths", "killed"),  # the past
            *("positions", "requested", "before_change"),  # what clients and a cluster engine are shown
            *(
                "plan",
                "slots",
                "machine",
                "machines",
                "others",
                "estimates",
                "specs",
            ),  # the same in all states of a world
            *("_numbers", "_names", "now"),  # only a difference counts
            "workers",  # beside what the scheduler knows of each of them
        }
    ),
    "SimulatedWorker": frozenset({"commands"}),  # the past
    "SchedulerState": frozenset(
        {
            *("counters", "metrics", "failed_checks", "unmet"),  # what operators and a cluster engine are shown
            *("limits", "policies", "files", "new_worker"),  # the same in all states of a world
            *("order", "ended_before"),  # greater than all that are there; nothing was taken over
            *("workers", "models"),  # in their nodes, and in their replica sets
            # what a look at everything would find again, as the twin in the histories shows
            *("reservations", "settings_claims", "figures", "nodes_version", "unassigned", "planned"),
        }
    ),
    "Scheduler": frozenset({"view"}),  # only a way to look at it
    "SchedulerNode": frozenset({"index", "joined_at", "serial", "facts"}),  # found by its name
    "ReplicaSet": frozenset({"index", "serial", "service_s"}),  # only estimates of waits depend on the last one
    "ScheduledModel": frozenset(
        {
            *("load_began", "memory", "lacks_memory"),  # what operators are shown
            "cutoff",  # see _replica
        }
    ),
    "ScheduledWorker": frozenset({"_moved", "progress", "ready_at", "id"}),  # the same
    "StateIndex": frozenset({"serials", "workers_in"}),  # by the workers' states
    "NodeSearch": frozenset({"suited"}),  # by the facts of the nodes
    "DueQueue": frozenset({"_timers", "_most_timers"}),  # by ``wake_at`` of what is to be looked at
    "Backoff": frozenset({"_policy"}),
    "SubmitRequest": frozenset({"number", "label"}),
    "SlotGrant": frozenset({"facts", "progress"}),  # what operators are shown
    "Eviction": frozenset({"idle_s", "free", "request"}),  # what is logged
    "RequestQueue": frozenset({"_added", "_removed"}),
}
"""Class → the attributes that decide nothing, or that follow from others."""
TIMES: Final = frozenset(
    {
        *(
            "last_use",
            "spawned_at",
            "idle_since",
            "next_announcement",
            "next_replica_at",
            "_slow_since",
            "_quiet_since",
        ),
        *("wake_at", "since", "began", "until", "at", "failed_at", "_until", "_deaths", "read_at", "_short_until"),
        *("waits_since", "compared_at", "past_use"),
    }
)
"""The attributes that say when something was or will be. A new one that is missing here makes all states differ."""
_AGES: Final = TIMES - {"last_use", "past_use"}
"""Those of which it does not matter which of two was first, if both are about as long ago."""
ORDER: Final = "order"
"""The attribute that says in what order something came."""
CHANGES: Final = ("changes", "_changes_read")
"""These are only compared with each other."""
_AS_IT_IS: Final = frozenset({bool, bytes, type(None)})
_CALLABLE: Final = (FunctionType, MethodType, BuiltinMethodType, partial, itertools.count)
_constants: Final[dict[int, tuple[object, object]]] = {}
"""Identity → an object that does not change, and what it looks like."""
_PARTS_OF_SECOND: Final = 1000
"""Parts of a second by which times are compared: events of a world are nearer to each other, and pauses longer."""


def picture(world: SmallWorld) -> bytes:
    """Return what decides what happens later: two worlds with the same picture go on in the same way."""
    return blake2b(marshal.dumps(full_picture(world), 2), digest_size=16).digest()


def full_picture(world: SmallWorld) -> object:
    """Return the same, to be read."""
    return _Painter(world).paint()


@cache
def _attributes(kind: type) -> tuple[str, ...]:
    """Return what is to be looked at in an object of a class; its own dictionary comes besides."""
    left_out = _left_out(kind)
    if issubclass(kind, msgspec.Struct):
        names: Iterable[str] = kind.__struct_fields__
    elif hasattr(kind, "_fields"):
        names = kind._fields
    else:
        names = itertools.chain.from_iterable(getattr(each, "__slots__", ()) for each in reversed(kind.__mro__))
    return tuple(name for name in names if name not in left_out and name not in ("__dict__", "__weakref__"))


@cache
def _left_out(kind: type) -> frozenset[str]:
    return frozenset().union(*(LEFT_OUT.get(each.__name__, frozenset()) for each in kind.__mro__))


class _Painter:
    """Goes through the objects of one world."""

    def __init__(self, world: SmallWorld) -> None:
        self._world = world
        self._state = state = world.state
        self._now = world.now
        self._names: dict[str, str] = {}
        """Worker → node and number there."""
        for node in state.nodes.values():
            with_model = [each.id for each in node.workers.values() if each.model is not None]
            others = sorted((each for each in node.workers.values() if each.model is None), key=lambda each: each.state)
            for number, worker in enumerate([*with_model, *(each.id for each in others)]):
                self._names[worker] = f"{node.name} {number}"
        self._ranks: dict[str, list[tuple[list[Any], float]]] = {}
        """Kind of number → where each one belongs, and its value."""
        self._kinds: dict[type, Callable[[Any, str], object]] = {
            float: self._float,
            int: self._int,
            dict: self._mapping,
            Counter: self._mapping,
            list: self._sequence,
            deque: self._sequence,
            tuple: self._sequence,
            set: self._set,
            frozenset: self._set,
            RequestKey: self._key,
            ScheduledWorker: lambda of, _: self._names.get(of.id, "gone"),
            ScheduledModel: lambda of, _: of.key,
            ReplicaSet: lambda of, _: of.name,
            SchedulerNode: lambda of, _: of.name,
            SchedulerState: lambda *_: "state",
            DueQueue: lambda of, _: sorted(getattr(each, "name", "") for each in of.pending),
            KnownMemory: self._memory,
        }

    def paint(self) -> object:
        state = self._state
        workers = {
            self._names[worker.id]: (self._object(worker), self._object(self._world.workers[worker.id]))
            for worker in state.workers.values()
        }
        found = [
            sorted(workers.items()),
            [self._object(each) for each in state.nodes.values()],
            [
                (self._object(each), [self._replica(model) for model in each.replicas])
                for each in state.replica_sets.values()
            ],
            list(state.models),
            self._object(state),
            self._object(self._world),
        ]
        for places in self._ranks.values():
            ranks = {value: rank for rank, value in enumerate(sorted({value for _, value in places}))}
            for place, value in places:
                place.append(ranks[value])
        return found

    def _replica(self, model: ScheduledModel) -> object:
        """An engine of a model. Its cutoff is compared with the arrivals of its model only."""
        of = model.replica_set
        orders = [waiting.order for waiting in of.queue]
        for each in of.replicas:
            orders += [*(grant.order for grant in each.grants.values()), *each.returning.values()]
        return self._object(model), sum(order < model.cutoff for order in orders), bool(model.cutoff)

    def _look(self, value: Any, name: str) -> object:
        kind = type(value)
        if kind in _AS_IT_IS:
            return value
        if kind is str:
            return self._names.get(value, value)
        how = self._kinds.get(kind)
        if how is not None:
            return how(value, name)
        if kind in SHARED:
            known = _constants.get(id(value))
            if known is None:
                known = _constants[id(value)] = value, self._constant(value)
            return known[1]
        if isinstance(value, enum.Enum):
            return str(value.value)
        if isinstance(value, _CALLABLE):
            return ""
        return self._object(value)

    def _constant(self, value: Any) -> object:
        return str(value.value) if isinstance(value, enum.Enum) else self._object(value)

    def _object(self, value: Any) -> object:
        kind, look = type(value), self._look
        found = [look(getattr(value, name), name) for name in _attributes(kind)]
        if own := getattr(value, "__dict__", None):
            left_out = _left_out(kind)
            found += [(name, look(each, name)) for name, each in own.items() if name not in left_out]
        return found

    def _int(self, value: int, name: str) -> object:
        return self._rank(name, value) if name == ORDER and value not in (0, LAST_ORDER) else value

    def _float(self, value: float, name: str) -> object:
        if name not in TIMES:
            return value
        age = value - self._now
        if abs(age) == float("inf"):
            return age
        about = round(age * _PARTS_OF_SECOND)
        return about if name in _AGES else (about, self._rank("last_use", value))

    def _rank(self, kind: str, value: float) -> list[Any]:
        place: list[Any] = []
        self._ranks.setdefault(kind, []).append((place, value))
        return place

    def _key(self, value: RequestKey, _: str) -> object:
        return value.gateway, self._rank("number", value.number), value.attempt

    def _mapping(self, value: Mapping[Any, Any], name: str) -> object:
        return [(self._look(key, name), self._look(each, name)) for key, each in value.items()] if value else ()

    def _sequence(self, value: Collection[Any], name: str) -> object:
        return [self._look(each, name) for each in value] if value else ()

    def _set(self, value: Collection[Any], name: str) -> object:
        return sorted((self._look(each, name) for each in value), key=repr) if value else ()

    def _memory(self, value: KnownMemory, _: str) -> object:
        of = [(name, self._look(each, name)) for name, each in vars(value).items() if name not in CHANGES]
        return [*of, ("unknown", value.unknown)]
