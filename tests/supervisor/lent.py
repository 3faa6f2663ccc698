"""A quiet house that lends slots: what a gateway has of them, and how it comes to have them."""

from __future__ import annotations

from protocol.ids import RequestKey
from tests.supervisor.worker import Lease
from tests.supervisor.world import World


def loaded(world: World, model: str) -> object:
    key = world.ask(model)
    world.calm()
    return key


def lease(world: World, gateway: str = "g1") -> Lease | None:
    return world.workers[world.serving("a")].leases.get(gateway)


def lent(world: World, gateway: str = "g1", slots: int = 4) -> Lease:
    """Let a gateway ask for so much at once, and end it, until that is lent."""
    world.finish(world.ask("a", gateway))
    keys: list[RequestKey] = []
    while (found := lease(world, gateway)) is None or found.slots < slots:
        keys.append(world.ask("a", gateway))
        assert len(keys) <= slots
    for key in keys:
        world.finish(key)
    return found
