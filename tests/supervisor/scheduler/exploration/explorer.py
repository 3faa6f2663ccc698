"""Goes through all histories of a world, breadth first. A state that was seen before is not gone on from."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from tests.supervisor.scheduler.exploration.picture import picture
from tests.supervisor.scheduler.exploration.small_worlds import PROGRESS, SmallWorld, Step, WorldPlan
from tests.supervisor.scheduler.exploration.snapshots import restored, snapshot

MOST_STEPS_TO_REST = 300


class ViolationError(AssertionError):
    """What must hold does not, and the history that leads there."""


class Explored(NamedTuple):
    """How much was gone through."""

    states: int
    steps: int
    longest: int
    """Steps of the shortest history that leads to the state that is farthest away."""


class _Reached(NamedTuple):
    """A state, and how it was reached first."""

    world: bytes
    picture: bytes
    history: tuple[Step, ...]


def explore(plan: WorldPlan, most_states: int, *, rests_without: tuple[str, ...] = ()) -> Explored:
    """Check what must hold in each state that can be reached, and that the world comes to rest from each of them.

    ``rests_without``: nodes without whose progress the requests of other nodes must also be answered. Raises
    :class:`ViolationError` with the shortest history that leads to one, and if there are more states than ``most_states``: then
    the world is too large to be explored.
    """
    return Explorer(plan, most_states, rests_without).explore()


class Explorer:
    def __init__(self, plan: WorldPlan, most_states: int, rests_without: tuple[str, ...] = ()) -> None:
        self._plan, self._most_states = plan, most_states
        self._without = ("", *rests_without)
        self._progress: dict[bytes, list[bytes]] = {}
        """State → the states to which it may go on by itself."""
        self._rests: dict[str, set[bytes]] = {node: set() for node in self._without}
        """The states from which the world is known to come to rest."""
        self._steps = 0

    def explore(self) -> Explored:
        longest = 0
        first = SmallWorld(self._plan)
        waiting: deque[_Reached] = deque()
        self._reach(first, (), waiting)
        while waiting:
            world, at, history = waiting.popleft()
            longest = max(longest, len(history))
            for step in restored(world).choices():
                self._steps += 1
                then = restored(world)
                happened = (*history, step)
                try:
                    then.take(step)
                except Exception as problem:
                    raise _violation(problem, happened) from problem
                seen = self._reach(then, happened, waiting)
                if step[0] in PROGRESS:
                    self._progress[at].append(seen)
            if len(self._progress) > self._most_states:
                raise ViolationError(f"there are more than {self._most_states} states")
        self._check_progress_ends()
        return Explored(len(self._progress), self._steps, longest)

    def _reach(self, world: SmallWorld, history: tuple[Step, ...], waiting: deque[_Reached]) -> bytes:
        """Check a state, unless it was seen before; return its picture."""
        seen = picture(world)
        if seen not in self._progress:
            self._progress[seen] = []
            kept = snapshot(world)
            waiting.append(_Reached(kept, seen, history))
            try:
                world.check_all()
                for node in self._without:
                    self._come_to_rest(restored(kept), node)
            except Exception as problem:
                raise _violation(problem, history) from problem
        return seen

    def _come_to_rest(self, world: SmallWorld, but: str) -> None:
        """Let nothing fail any more, and no request come: everything that waits is answered."""
        known, new = self._rests[but], set()
        world.begin_rest()
        for _ in range(MOST_STEPS_TO_REST):
            seen = picture(world)
            if seen in known:
                break
            new.add(seen)
            if not world.step_to_rest(but):
                world.check_at_rest(but)
                break
        else:
            raise AssertionError(f"something waits forever: {world.unanswered()}")
        known |= new

    def _check_progress_ends(self) -> None:
        """However the workers go on, they come to rest: none of them goes round in circles."""
        before: dict[bytes, int] = dict.fromkeys(self._progress, 0)
        for following in self._progress.values():
            for each in following:
                before[each] += 1
        free = [each for each, number in before.items() if not number]
        ended = 0
        while free:
            ended += 1
            for each in self._progress[free.pop()]:
                before[each] -= 1
                if not before[each]:
                    free.append(each)
        if ended < len(self._progress):
            raise ViolationError(f"workers go on for ever in {len(self._progress) - ended} states")


def _violation(problem: Exception, history: tuple[Step, ...]) -> ViolationError:
    happened = "\n".join(f"  {' '.join(step)}" for step in history)
    return ViolationError(f"{type(problem).__name__}: {problem}, after\n{happened}")
