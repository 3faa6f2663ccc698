"""A small world: what can happen in it next. What must hold in it is in :mod:`world_checks`.

Each world has two nodes, few models and requests, and one fault at any point. Whatever follows from the fault may follow later:
a node that was lost is back, a link is whole again, a drain ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from protocol.failures import Code, Failure
from protocol.ids import RequestKey
from protocol.models.memory import HOST, MemoryEstimate, PlaceNeed
from protocol.models.nodes import HEAD, NodeNeeds
from protocol.models.recipes import ModelSpec
from protocol.worker_states import WorkerState
from supervisor.scheduler.policy import FixedPolicies, ModelPolicy
from tests.supervisor.scheduler.effect_player import spec
from tests.supervisor.scheduler.exploration.world_checks import CheckedWorld
from tests.supervisor.scheduler.simulation import MOVING

Step = tuple[str, ...]
"""What happens, and to what."""
OTHER: Final = "gpu2"
"""The node besides the head."""
FAULTS: Final = (
    *("engine crashes", "engine is killed", "load fails", "worker dies", "node is lost", "link breaks", "copy fails"),
    *("client leaves", "gateway is gone", "unload", "node drains", "memory is short"),
)
"""What may happen once, at any point."""
PROGRESS: Final = ("go on", "copied")
"""Steps that need neither a client nor a fault nor time."""
_TICK_S: Final = 1e-6
"""Between two events, so that it is known which model was used last."""


class WorldPlan(NamedTuple):
    """What there is in a world, and what may fail."""

    requests: str = "aba"
    """The models of the requests, in the order in which they come, from two gateways in turn."""
    nodes: tuple[str, ...] = (HEAD, OTHER)
    faults: tuple[str, ...] = FAULTS
    loaded: int = 1
    """Models that may be loaded on a node at once."""
    spares: int = 0
    """Worker processes that each node has ready."""
    slots: int = 1
    memory: int = 0
    """Bytes of each node, if they are counted."""
    needs: Mapping[str, int] = {}
    """Model → bytes that it needs; others need 600."""
    only_on: Mapping[str, str] = {}
    """Model → the node that it needs."""
    lacking: tuple[tuple[str, str], ...] = ()
    """(model, node): the node has not got the files at first."""
    policies: Mapping[str, ModelPolicy] = {}
    waits: int = 0
    """How often time passes."""
    pinned: str = ""
    """A model that is loaded and pinned before the first request."""


class SmallWorld(CheckedWorld):
    """A simulation that says what can happen next."""

    def __init__(self, plan: WorldPlan) -> None:
        self.plan = plan
        self.faults_left = bool(plan.faults)
        self.to_come = list(plan.requests)
        self.waits_left = plan.waits
        self.lost: list[str] = []
        """Nodes that were lost."""
        super().__init__(
            plan.loaded, plan.slots, FixedPolicies(dict(plan.policies)), spares=plan.spares, memory_reserve=0
        )
        if plan.memory:
            self.machine[HOST] = plan.memory
            need = {model: plan.needs.get(model, 600) for model in plan.requests}
            self.estimates = {model: MemoryEstimate({HOST: PlaceNeed(bytes_)}) for model, bytes_ in need.items()}
        self.lacking = set(plan.lacking)
        for node in plan.nodes[1:]:
            self.join(node, machine=dict(self.machine))
        self.run_until_idle()
        if plan.pinned:
            self.load(plan.pinned, 700, pin=True)
            self.run_until_idle()

    def spec_of(self, model: str) -> ModelSpec:
        node = self.plan.only_on.get(model)
        return spec(model, needs=NodeNeeds(nodes=[node] if node else []))

    # ---- what can happen ---------------------------------------------------------------------------------------------

    def choices(self) -> list[Step]:
        """Return what can happen next."""
        found: list[Step] = [("submit",)] if self.to_come else []
        found += self.progress()
        found += [("finish", str(key.number)) for key in self.running()]
        if self.waits_left:
            found.append(("time passes",))
        if self.faults_left:
            found += [(fault, what) for fault in self.plan.faults for what in self._targets(fault)]
        found += self._recoveries()
        return found

    def progress(self, but: str = "") -> list[Step]:
        """Return what goes on by itself. ``but``: on this node, nothing does."""
        silent = {*self.cut_off, but}
        moving = [each.id for each in self.state.workers.values() if each.state in MOVING and each.node not in silent]
        copied = [("copied", *copy) for copy in self.copies if copy[1] not in silent]
        return [*(("go on", worker) for worker in moving), *copied]

    def running(self, but: str = "") -> list[RequestKey]:
        """Return what engines work on. ``but``: except on this node."""
        silent = {*self.cut_off, but}
        return sorted(key for worker in self.workers.values() if worker.node not in silent for key in worker.running)

    def _recoveries(self) -> Iterator[Step]:
        for node in sorted(self.cut_off):
            yield "link is whole", node
            yield "node is lost", node
        yield from (("node is back", node) for node in self.lost)
        yield from (("drain ends", name) for name, node in self.state.nodes.items() if node.draining)

    def _targets(self, fault: str) -> list[str]:
        match fault:
            case "engine crashes" | "engine is killed":
                return self.of_state(WorkerState.READY, WorkerState.DRAINING)
            case "load fails":
                return self.of_state(WorkerState.CHECKING, WorkerState.LOADING)
            case "worker dies":
                return list(self.state.workers)
            case "node is lost" | "link breaks":
                return [node for node in self.plan.nodes[1:] if node in self.state.nodes]
            case "node drains":
                return [*self.state.nodes] if len(self.state.nodes) > 1 else []
            case "copy fails":
                return [" ".join(copy) for copy in self.copies]
            case "client leaves":
                return [str(key.number) for key in sorted(self.live)]
            case "gateway is gone":
                return sorted({key.gateway for key in self.live})
            case "unload":
                return [
                    name for name, its in self.state.replica_sets.items() if any(r.unloadable for r in its.replicas)
                ]
            case _:
                return [""]

    def take(self, step: Step) -> None:
        """Let something happen."""
        self.now += _TICK_S
        what, of = step[0], step[-1]
        if what in self.plan.faults and of not in self.cut_off:
            self.faults_left = False
        match what:
            case "submit":
                model = self.to_come.pop(0)
                self.submit(model, f"g{1 + len(self.to_come) % 2}")
            case "go on":
                self.go_on(of)
            case "copied":
                self.copied(step[1], step[2])
            case "finish":
                self.finish(next(key for key in self.running() if key.number == int(of)))
            case "time passes":
                self.waits_left -= 1
                self.pass_time(7.0)
            case _:
                self._fail(what, of)

    def _fail(self, what: str, of: str) -> None:  # noqa: C901, PLR0912 - one case for each fault
        match what:
            case "engine crashes":
                self._retry(self.engine_dies(of), suspect=True)
            case "engine is killed":
                self._retry(self.engine_dies(of, killed=True), suspect=True)
            case "load fails":
                self.may_refuse |= {Code.LOAD_FAILED, Code.BACKING_OFF}
                self.load_fails(of)
            case "worker dies":
                self._retry(self.worker_dies(of), suspect=True)
            case "node is lost":
                self.lost.append(of)
                self._retry(self.node_dies(of), suspect=False)
            case "node is back":
                self.lost.remove(of)
                self.join(of, machine=dict(self.machine))
                self.hear_old_words()
            case "link breaks":
                self.cut_off.add(of)
            case "link is whole":
                self.cut_off.remove(of)
                self.settle()
            case "copy fails":
                model, node = of.split()
                self.may_refuse.add(Code.DOWNLOAD_FAILED)
                self.copied(model, node, Failure(Code.DOWNLOAD_FAILED, "its disk is full"))
            case "client leaves":
                self.cancel(next(key for key in self.live if key.number == int(of)))
            case "gateway is gone":
                self.gateway_dies(of)
            case "unload":
                self.may_refuse.add(Code.UNLOADED)
                self.unload(of, 800)
            case "node drains" | "drain ends":
                self.moved = True
                self.drain(of, draining=what == "node drains")
            case "memory is short":
                self.memory_is_short()

    def _retry(self, lost: list[RequestKey], *, suspect: bool) -> None:
        """Gateways try once more what was lost. ``suspect``: the engine may have died of it."""
        for key in lost:
            if key.attempt == 1 and key.gateway not in self.gone:
                self.retry(key, name=self.plan.requests[key.number - 1], suspect=suspect)

    # ---- rest --------------------------------------------------------------------------------------------------------

    def begin_rest(self) -> None:
        """Let nothing fail any more, and no request come. A node whose link is broken is lost."""
        self.to_come, self.faults_left, self.waits_left = [], False, 0
        for node in list(self.cut_off):
            self.take(("node is lost", node))

    def step_to_rest(self, but: str = "") -> bool:
        """Let the next thing happen; return False if nothing is left to happen. ``but``: on this node, nothing does."""
        progress, running = self.progress(but), self.running(but)
        if progress:
            self.take(progress[0])
        elif running:
            self.finish(running[0])
        elif self.is_waiting(but):
            self.pass_time(31.0)
        else:
            return False
        return True
