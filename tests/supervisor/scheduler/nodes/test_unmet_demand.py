"""What a cluster engine is asked for, because no node can give it."""

from __future__ import annotations

import pytest

from protocol.models.memory import HOST, MemoryEstimate, PlaceNeed
from protocol.models.nodes import NodeNeeds
from supervisor.scheduler.nodes.unmet_demand import UNMET_S, bundle_of
from tests.supervisor.scheduler.effect_player import spec
from tests.supervisor.scheduler.simulated_nodes import cluster, need, places


def test_what_no_node_can_give_is_asked_for_until_it_is_there() -> None:
    sim = cluster(head=10, scales=True, gpu2=20)
    need(sim, a=50)
    sim.load("a", 901, needs=NodeNeeds(resources={"a100": 2.0}))
    assert sim.requested == [{"CPU": 1.0, "a100": 2.0}]
    sim.load("a", 902, size=50)
    sim.run_until_idle()
    assert sim.requested == [{"CPU": 1.0, "memory": 50.0}]
    sim.join("gpu3", machine={HOST: 60})
    sim.load("a", 903, size=50)
    sim.run_until_idle()
    assert (places(sim), sim.requested) == ({"a": "gpu3"}, [])


def test_a_load_that_must_wait_for_busy_models_asks_for_a_node_and_not_for_ever() -> None:
    sim = cluster(head=60, scales=True)
    need(sim, a=50, b=50)
    sim.load("a", size=50)
    sim.run_until_idle()
    running = sim.submit("a")
    sim.load("b", 902, size=50)
    sim.run_until_idle()
    assert sim.requested == [{"CPU": 1.0, "memory": 50.0}]
    sim.unload("b", 903)
    sim.pass_time(UNMET_S)
    sim.finish(running)
    assert sim.requested == []


def test_nothing_is_asked_for_where_no_node_can_be_added() -> None:
    sim = cluster(head=10)
    need(sim, a=50)
    sim.load("a", 901)
    sim.run_until_idle()
    assert sim.requested == []


@pytest.mark.parametrize(
    ("need", "on_devices", "bundle"),
    [
        ({"0000:01:00.0": 7, HOST: 3}, True, {"CPU": 1.0, "GPU": 1.0, "memory": 3.0}),
        ({"0000:01:00.0": 7, "0000:02:00.0": 7}, True, {"CPU": 1.0, "GPU": 2.0}),
        ({"": 7}, True, {"CPU": 1.0, "GPU": 1.0}),
        ({"": 7}, False, {"CPU": 1.0, "memory": 7.0}),
        ({}, True, {"CPU": 1.0}),
    ],
)
def test_what_a_node_must_have_for_a_model(need: dict[str, int], on_devices: bool, bundle: dict[str, float]) -> None:
    estimate = MemoryEstimate({place: PlaceNeed(bytes_) for place, bytes_ in need.items()})
    assert bundle_of(spec("a"), estimate, on_devices=on_devices) == bundle
