"""Random histories of a server whose nodes join, drain, are cut off, are lost, are back and lack files."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import initialize, invariant, precondition, rule

from protocol.failures import Code, Failure
from protocol.models.memory import HOST, MemoryEstimate, PlaceNeed
from protocol.models.nodes import HEAD, NodeNeeds
from protocol.worker_states import WorkerState
from supervisor.scheduler.policy import FixedPolicies
from tests.supervisor.scheduler.effect_player import NO_POLICIES
from tests.supervisor.scheduler.scheduler_machine import MODELS, POLICIES, SchedulerMachine
from tests.supervisor.scheduler.simulation import Simulation

NODES = st.sampled_from(["n1", "n2"])
NEEDS = st.sampled_from([NodeNeeds(), NodeNeeds(), NodeNeeds(nodes=["n*"]), NodeNeeds(nodes=["n1", HEAD])])


class NodeMachine(SchedulerMachine):
    """The events of a server with up to three nodes."""

    drained = False
    """Whether a node was drained: then a model may be loaded on another one before it leaves this one."""

    @initialize(
        models=st.integers(1, 3),
        slots=st.sampled_from([2, 4]),
        policies=st.just(NO_POLICIES) | POLICIES,
        sizes=st.tuples(*[st.integers(0, 9)] * 3),
        memory=st.tuples(*[st.integers(4, 12)] * 3),
        present=st.sets(NODES),
    )
    def open(
        self,
        models: int,
        slots: int,
        policies: FixedPolicies,
        sizes: tuple[int, ...],
        memory: tuple[int, ...],
        present: set[str],
    ) -> None:
        self.sim = Simulation(
            models, slots, policies, queue_requests=5, memory_reserve=0, device_memory_reserve=0, scales=True
        )
        self.calls = 1000
        self.sim.machine[HOST] = memory[0]
        self.memory = dict(zip(("n1", "n2"), memory[1:], strict=True))
        self.sim.estimates = {
            name: MemoryEstimate({HOST: PlaceNeed(size)}) for name, size in zip("abc", sizes, strict=True)
        }
        for name in sorted(present):
            self.sim.join(name, machine={HOST: self.memory[name]})

    @rule(name=NODES)
    def join(self, name: str) -> None:
        self.sim.join(name, machine={HOST: self.memory[name]})

    @precondition(lambda self: len(self.sim.state.nodes) > 1)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        """A node is lost. Gateways try once more what ran there."""
        names = dict(self.sim.live)
        for key in self.sim.node_dies(self.pick(data, sorted(self.sim.state.nodes.keys() - {HEAD}))):
            if key.attempt == 1:
                self.sim.retry(key, name=names[key], suspect=False)

    @precondition(lambda self: len(self.sim.state.nodes) > 1)
    @rule(data=st.data())
    def cut_off(self, data: st.DataObject) -> None:
        """The link to a node breaks. What it is told waits, and nothing is heard of it, until it is lost or reached again."""
        self.sim.cut_off.add(self.pick(data, sorted(self.sim.state.nodes.keys() - {HEAD})))

    @precondition(lambda self: self.sim.cut_off)
    @rule(data=st.data())
    def reach_again(self, data: st.DataObject) -> None:
        self.sim.cut_off.remove(self.pick(data, sorted(self.sim.cut_off)))
        self.sim.settle()

    @rule(data=st.data(), draining=st.booleans())
    def drain(self, data: st.DataObject, draining: bool) -> None:
        self.drained = self.drained or draining
        self.sim.drain(self.pick(data, sorted(self.sim.state.nodes)), draining=draining)

    @rule(model=MODELS, needs=NEEDS, size=st.integers(0, 9))
    def load_somewhere(self, model: str, needs: NodeNeeds, size: int) -> None:
        self.calls += 1
        self.sim.load(model, self.calls, needs=needs, size=size)

    @rule(model=MODELS, needs=NEEDS)
    def plan_somewhere(self, model: str, needs: NodeNeeds) -> None:
        self.calls += 1
        self.sim.plan(model, self.calls, needs=needs)

    @rule(model=MODELS, name=NODES)
    def lack(self, model: str, name: str) -> None:
        """The files of a model are missing on a node from now on, unless it is loaded or about to be loaded there."""
        has = {each.model.name for each in self.sim.state.workers.values() if each.node == name and each.model}
        will = {each.name for each in self.sim.state.models.values() if each.search.node == name}
        if model not in has | will:
            self.sim.lacking.add((model, name))

    @precondition(lambda self: self.sim.copies)
    @rule(data=st.data(), works=st.booleans())
    def end_copy(self, data: st.DataObject, works: bool) -> None:
        model, name = self.pick(data, sorted(self.sim.copies))
        self.sim.copied(model, name, None if works else Failure(Code.DOWNLOAD_FAILED, "its disk is full"))

    @invariant()
    def check_nodes(self) -> None:
        """Engines of a node fit together there; workers and copies belong to nodes of the server."""
        if not hasattr(self, "sim"):
            return
        state = self.sim.state
        for of in state.replica_sets.values():
            assert of.policy.min_replicas <= of.scaling.wanted <= of.policy.max_replicas
            staying = [
                each for each in of.replicas if each.worker is not None and not state.nodes[each.worker.node].draining
            ]
            assert len(staying) <= of.policy.max_replicas + self.drained, f"too many engines of {of.name}"
        assert {node for _, node in state.copies} <= state.nodes.keys()
        assert {worker.node for worker in state.workers.values()} <= state.nodes.keys()
        for name in state.nodes:
            total = self.sim.machine[HOST] if name == HEAD else self.sim.machines[name][HOST]
            engines = [each for each in state.workers.values() if each.node == name and each.counts_as_loaded]
            taken = sum(
                self.sim.workers[each.id].held.get(HOST, 0)
                if each.state is WorkerState.LEAVING
                else each.need.get(HOST, 0)
                for each in engines
            )
            assert taken <= total, f"more of {name} is taken than there is"
            loading = [each for each in engines if each.state is WorkerState.LOADING]
            assert not any(each.model and (each.model.name, name) in self.sim.lacking for each in loading)

    def teardown(self) -> None:
        if hasattr(self, "sim"):
            for name in list(self.sim.state.nodes):
                self.sim.drain(name, draining=False)
            self.sim.cut_off.clear()
            self.sim.settle()
            for model, name in list(self.sim.copies):
                self.sim.copied(model, name)
            self.sim.lacking.clear()
        super().teardown()


TestNodeHistories = NodeMachine.TestCase
TestNodeHistories.settings = settings(stateful_step_count=40, suppress_health_check=list(HealthCheck))
