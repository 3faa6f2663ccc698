"""Goes through all histories of a world, breadth first. A state that was seen before is not gone on from."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from tests.supervisor.scheduler.exploration.small_worlds import SmallWorld, Step, WorldPlan


class ViolationError(AssertionError):
    """What must hold does not, and the history that leads there."""


class Explored(NamedTuple):
    """How much was gone through."""

    states: int
    steps: int
    longest: int
    """Steps of the longest history."""


def explore(plan: WorldPlan, most_states: int) -> Explored:
    """Check what must hold in each state that can be reached, and that the world comes to rest from each of them.

    Raises :class:`ViolationError` with the shortest history that leads to one, and if there are more states than ``most_states``:
    then the world is too large to be explored.
    """
    seen: set[object] = set()
    waiting: deque[tuple[Step, ...]] = deque([()])
    steps = longest = 0
    while waiting:
        history = waiting.popleft()
        world = SmallWorld(plan)
        steps += len(history)
        longest = max(longest, len(history))
        try:
            for number, step in enumerate(history, 1):
                world.repeats = number < len(history)
                world.take(step)
            world.check_world()
            picture = world.picture()
            if picture in seen:
                continue
            seen.add(picture)
            waiting.extend((*history, step) for step in world.choices())
            world.come_to_rest()
        except Exception as problem:
            happened = "\n".join(f"  {' '.join(step)}" for step in history)
            raise ViolationError(f"{type(problem).__name__}: {problem}, after\n{happened}") from problem
        if len(seen) > most_states:
            raise ViolationError(f"there are more than {most_states} states")
    return Explored(len(seen), steps, longest)
