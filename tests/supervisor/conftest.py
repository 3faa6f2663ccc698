"""What tests of the supervisor share: a quiet house."""

from __future__ import annotations

import pytest

from supervisor.places import CLOSELY_S
from tests.supervisor.lent import loaded
from tests.supervisor.world import World


@pytest.fixture
def world() -> World:
    """A quiet house with one model of eight slots, used a while ago."""
    world = World(2, 8)
    world.finish(loaded(world, "a"))
    world.pass_time(10 * CLOSELY_S)
    return world
