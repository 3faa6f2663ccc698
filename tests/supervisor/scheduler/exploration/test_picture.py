"""Two small worlds have the same picture only if they go on in the same way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from supervisor.scheduler.policy import ModelPolicy
from tests.supervisor.scheduler.exploration.picture import CHANGES, LEFT_OUT, ORDER, picture
from tests.supervisor.scheduler.exploration.small_worlds import SmallWorld, WorldPlan
from tests.supervisor.scheduler.exploration.snapshots import restored, snapshot

PLAN = WorldPlan(
    "aab", waits=1, policies={"a": ModelPolicy(min_replicas=1, max_replicas=2)}, faults=("node is lost", "worker dies")
)


def test_worlds_with_the_same_picture_go_on_in_the_same_way() -> None:
    """Whenever a picture is seen again, what follows looks as it did the first time."""
    plan = WorldPlan("ab", waits=1, faults=("worker dies",))
    following: dict[bytes, set[tuple[str, bytes]]] = {}
    waiting, again = [snapshot(SmallWorld(plan))], 0
    while again < 60:
        world = waiting.pop(0)
        seen = picture(restored(world))
        known = following.get(seen)
        found = set()
        for step in restored(world).choices():
            then = restored(world)
            then.take(step)
            found.add((step[0], picture(then)))
            if known is None:
                waiting.append(snapshot(then))
        if known is None:
            following[seen] = found
        else:
            again += 1
            assert found == known


def changeable(of: Any, path: str = "", seen: set[int] | None = None) -> Iterator[tuple[str, Any, str, Any]]:  # noqa: C901 - one case for each kind of value
    """Yield (path, object, attribute, another value) for all plain values in mutable objects of the scheduler."""
    seen = set() if seen is None else seen
    if id(of) in seen or isinstance(of, msgspec.Struct | str | bytes | int | float | None | tuple):
        return
    seen.add(id(of))
    if isinstance(of, dict):
        for key, each in of.items():
            yield from changeable(each, f"{path}[{key}]", seen)
        return
    if isinstance(of, list | set | frozenset):
        for each in of:
            yield from changeable(each, f"{path}[]", seen)
        return
    if not type(of).__module__.startswith(("supervisor.scheduler", "tests.")):
        return
    left_out = frozenset().union(*(LEFT_OUT.get(each.__name__, frozenset()) for each in type(of).__mro__))
    names = {*getattr(of, "__dict__", ())}.union(*(getattr(each, "__slots__", ()) for each in type(of).__mro__))
    for name in sorted(names - left_out - {"__weakref__", "__dict__"}):
        value = getattr(of, name)
        if isinstance(value, bool):
            yield f"{path}.{name}", of, name, not value
        elif isinstance(value, int) and name not in (ORDER, *CHANGES):  # these are only compared
            yield f"{path}.{name}", of, name, value + 1
        elif isinstance(value, float):
            yield f"{path}.{name}", of, name, -5.0 if abs(value) == float("inf") else value + 3.0
        elif value is None:
            yield f"{path}.{name}", of, name, "something"
        else:
            yield from changeable(value, f"{path}.{name}", seen)


def test_whatever_changes_in_a_world_changes_its_picture() -> None:
    world = SmallWorld(PLAN)
    for _ in range(9):
        world.take(world.choices()[0])
    before, tried = picture(world), 0
    for path, of, name, other in list(changeable(world)):
        value = getattr(of, name)
        setattr(of, name, other)
        try:
            assert picture(world) != before, path
        finally:
            setattr(of, name, value)
        tried += 1
    assert picture(world) == before
    assert tried > 100


def test_worlds_that_differ_in_numbers_and_in_the_time_only_have_the_same_picture() -> None:
    first, second = SmallWorld(PLAN), SmallWorld(PLAN)
    key = second.submit("b")
    second.run_until_idle()
    second.finish(key)
    assert picture(first) != picture(second)
    third = restored(snapshot(second))
    third.now += 1e-5
    assert picture(second) == picture(third)
    for world, name in ((second, "w7"), (third, "w8")):
        world.new_worker = lambda name=name: name
        world.state.new_worker = world.new_worker
        world.take(("submit",))
    assert picture(second) == picture(third)


@pytest.mark.parametrize("name", LEFT_OUT)
def test_each_class_of_which_something_is_left_out_is_in_a_world(name: str) -> None:
    bases = {each.__name__ for kind in _kinds(SmallWorld(PLAN)) for each in kind.__mro__}
    assert name in bases | {"Eviction", "SlotGrant"}


def _kinds(world: SmallWorld) -> set[type]:
    world.take(("submit",))
    world.run_until_idle()
    world.take(("submit",))
    seen: set[int] = set()
    kinds: set[type] = set()

    def look(of: object) -> None:
        if id(of) in seen:
            return
        seen.add(id(of))
        kinds.add(type(of))
        inside = [*getattr(of, "__dict__", {}).values()]
        for kind in type(of).__mro__:
            inside += [getattr(of, name) for name in getattr(kind, "__slots__", ()) if hasattr(of, name)]
        if isinstance(of, dict):
            inside += of.values()
        elif isinstance(of, list | tuple):
            inside += of
        for each in inside:
            look(each)

    look(world)
    return kinds
