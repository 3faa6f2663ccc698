"""Explores the larger worlds, for ``make exploration``: many minutes each."""

from __future__ import annotations

import time

from tests.supervisor.scheduler.exploration.explorer import explore
from tests.supervisor.scheduler.exploration.worlds import LARGE, MOST_STATES

for name, world in LARGE.items():
    began = time.monotonic()
    explored = explore(world.plan, MOST_STATES, rests_without=world.rests_without)
    print(f"{name}: {explored.states} states, {explored.steps} steps, {time.monotonic() - began:.0f} s", flush=True)
    assert explored.states >= world.least
