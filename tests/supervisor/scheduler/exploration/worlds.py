"""The small worlds that are explored: with each test run, and the larger ones with ``make exploration``."""

from __future__ import annotations

from typing import Final, NamedTuple

from protocol.models.nodes import HEAD
from supervisor.scheduler.policy import ModelPolicy
from tests.supervisor.scheduler.exploration.small_worlds import OTHER, WorldPlan

_ALWAYS_TWO: Final = {"a": ModelPolicy(min_replicas=2, max_replicas=2)}
_ONE_OR_TWO: Final = {"a": ModelPolicy(min_replicas=1, max_replicas=2)}
_NO_FILES: Final = (("a", OTHER), ("b", OTHER))
_BOUND: Final = {"a": HEAD, "b": HEAD, "c": OTHER}


class ExploredWorld(NamedTuple):
    """A world, and how many states it has at least: fewer would mean that something cannot happen any more."""

    plan: WorldPlan
    least: int
    rests_without: tuple[str, ...] = ()
    """See :func:`tests.supervisor.scheduler.exploration.explorer.explore`."""


WORLDS: Final[dict[str, ExploredWorld]] = {
    "an engine crashes": ExploredWorld(WorldPlan(faults=("engine crashes",)), 600),
    "an engine is killed for its memory": ExploredWorld(WorldPlan("ab", faults=("engine is killed",)), 50),
    "a load fails": ExploredWorld(WorldPlan(faults=("load fails",)), 400),
    "a worker dies": ExploredWorld(WorldPlan(faults=("worker dies",)), 1500),
    "a client leaves": ExploredWorld(WorldPlan(faults=("client leaves",)), 800),
    "a gateway is gone": ExploredWorld(WorldPlan(faults=("gateway is gone",)), 300),
    "a model is unloaded": ExploredWorld(WorldPlan(faults=("unload",)), 400),
    "memory is short": ExploredWorld(WorldPlan(faults=("memory is short",)), 300),
    "a node is lost and is back": ExploredWorld(WorldPlan(faults=("node is lost",)), 2000),
    "a link breaks": ExploredWorld(WorldPlan("ab", faults=("link breaks",)), 300),
    "a node drains": ExploredWorld(WorldPlan("a", faults=("node drains",)), 40),
    "a copy fails": ExploredWorld(WorldPlan("aba", faults=("copy fails",), lacking=_NO_FILES, memory=1000), 200),
    "copies and a lost node": ExploredWorld(
        WorldPlan("ab", faults=("node is lost",), lacking=_NO_FILES, memory=1000), 200
    ),
    "each node has memory for one model": ExploredWorld(
        WorldPlan("ab", loaded=4, memory=1000, faults=("node is lost", "engine crashes")), 300
    ),
    "a model is too large": ExploredWorld(
        WorldPlan("aba", needs={"b": 2000}, memory=1000, faults=("node is lost",)), 100
    ),
    "a model is pinned": ExploredWorld(
        WorldPlan("aba", nodes=(HEAD,), memory=1000, pinned="a", faults=("worker dies",)), 20
    ),
    "always two replicas": ExploredWorld(WorldPlan("aa", policies=_ALWAYS_TWO, faults=("engine crashes",)), 100),
    "two replicas and a lost node": ExploredWorld(WorldPlan("aa", policies=_ALWAYS_TWO, faults=("node is lost",)), 150),
    "two replicas on one machine": ExploredWorld(
        WorldPlan("aa", nodes=(HEAD,), loaded=2, policies=_ALWAYS_TWO, faults=("unload",)), 100
    ),
    "one replica or two": ExploredWorld(WorldPlan("aa", policies=_ONE_OR_TWO, waits=2, faults=()), 50),
    "two swaps": ExploredWorld(WorldPlan("abc", only_on=_BOUND, faults=()), 50, rests_without=(HEAD, OTHER)),
    "spare workers": ExploredWorld(WorldPlan("ab", spares=1, faults=("load fails",)), 200),
    "one machine": ExploredWorld(WorldPlan("aba", nodes=(HEAD,), faults=("engine crashes",)), 50),
}
LARGE: Final[dict[str, ExploredWorld]] = {
    "one replica or two": ExploredWorld(
        WorldPlan("aaa", policies=_ONE_OR_TWO, waits=2, faults=("client leaves",)), 1000
    ),
    "a link breaks": ExploredWorld(WorldPlan(faults=("link breaks",)), 2000),
    "always two replicas": ExploredWorld(WorldPlan("aab", policies=_ALWAYS_TWO, faults=("engine crashes",)), 1000),
    "each node has memory for one model": ExploredWorld(
        WorldPlan("aba", loaded=4, memory=1000, faults=("node is lost", "engine crashes")), 1000
    ),
    "a node drains": ExploredWorld(WorldPlan(faults=("node drains",)), 2000),
    "two replicas and a lost node": ExploredWorld(
        WorldPlan("aab", policies=_ALWAYS_TWO, faults=("node is lost",)), 1000
    ),
    "two replicas and a drain": ExploredWorld(WorldPlan("aa", policies=_ALWAYS_TWO, faults=("node drains",)), 1000),
    "copies and a lost node": ExploredWorld(
        WorldPlan("aba", faults=("node is lost",), lacking=_NO_FILES, memory=1000), 1000
    ),
    "spare workers": ExploredWorld(WorldPlan("aba", spares=1, faults=("load fails",)), 2000),
}
MOST_STATES: Final = 200_000
