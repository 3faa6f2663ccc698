"""The thread that talks to Ray: which nodes there are, an agent on each, and again when it has ended.

Every call of Ray blocks, and hangs while the head of the cluster is away; then Ray ends this whole process after a minute,
and the next job connects. Agents go on meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from protocol.messages.ray_cluster import RayClusterReport, RayNode
from protocol.runtime import logs
from protocol.runtime.deferred_module import DeferredModule
from workers.jobs.ray_cluster.agent_plan import AgentPlan, PlannedAgent, RayError

if TYPE_CHECKING:
    from workers.jobs.ray_cluster import cluster
    from workers.jobs.ray_cluster.cluster import NodeActor
else:
    cluster = DeferredModule(
        "workers.jobs.ray_cluster.cluster"
    )  # it imports ray, which takes half a second: in the thread

LOOK_INTERVAL_S: Final = 0.5
_PATIENCE_S: Final = 10.0
"""How long Ray may take to start an actor before health says so."""
_RETRY_S: Final = 2.0

log = logs.get_logger()


class RayDriver:
    """The thread's work. The other methods may be called from any thread."""

    def __init__(
        self,
        gcs: str,
        namespace: str,
        boot: str,
        gpus: int,
        order_for: Callable[[PlannedAgent], str],
        report: Callable[[RayClusterReport], None],
    ) -> None:
        """``gpus`` of each node, -1: all. ``order_for`` returns what an agent reads. ``report`` is called in this thread."""
        self._gcs, self._namespace, self._boot, self._gpus = gcs, namespace, boot, gpus
        self._order_for, self._report = order_for, report
        self._plan = AgentPlan()
        self._actors: dict[str, NodeActor] = {}
        """Ray's id of a node → the actor there."""
        self._draining: set[str] = set()
        """Nodes where Ray is about to end, and whose agents were told to end."""
        self._reported: RayClusterReport | None = None
        self._bundles: list[dict[str, float]] | None = []
        """What the autoscaler is still to be told. First: nothing, instead of what a server that was killed has left there."""
        self._requested = False
        """Whether it was told anything else than nothing."""
        self._stopping = threading.Event()
        self.called_at = time.monotonic()
        """When the thread began its present call of Ray."""

    def request_resources(self, bundles: list[dict[str, float]]) -> None:
        """Tell the autoscaler what further nodes must have."""
        self._bundles = bundles

    def stop(self) -> None:
        """End the thread soon. Agents that run go on; those that Ray has not started are given up."""
        self._stopping.set()

    def run(self) -> None:
        """Work until :meth:`stop`."""
        while not self._stopping.is_set():
            self.called_at = time.monotonic()
            try:
                cluster.connect(self._gcs, self._namespace)
                break
            except RayError as problem:
                self._tell(str(problem))
                self._stopping.wait(_RETRY_S)
        while not self._stopping.is_set():
            self.called_at = time.monotonic()
            try:
                self._look()
            except RayError as problem:
                self._tell(str(problem))
            self._wait()
        if self._requested:
            cluster.request_resources([])
        for actor in self._actors.values():
            if actor.starts:
                actor.kill()

    def _look(self) -> None:
        """Bring the plan and the cluster together."""
        self._plan.nodes_seen(cluster.living_nodes(), time.monotonic())
        for node in self._actors.keys() - self._plan.agents.keys():
            actor = self._actors.pop(node)
            if actor.starts:
                actor.kill()
        self._drain()
        for agent in self._plan.due(time.monotonic()):
            self._start(agent)
        for node, actor in self._actors.items():
            if actor.starts and time.monotonic() - self._plan.agents[node].started > _PATIENCE_S:
                self._plan.waits(node, self._why_waiting(self._plan.agents[node]))
        bundles, self._bundles = self._bundles, None
        if bundles is not None:
            self._requested = bool(bundles)
            cluster.request_resources(bundles)
        self._tell("")

    def _drain(self) -> None:
        """Tell the agents to end where Ray is about to end."""
        draining = set(self._plan.draining())
        for node in draining - self._draining:
            log.info("Ray is about to end on a node", node=self._plan.agents[node].name)
            if node in self._actors:
                self._actors[node].drain()
        self._draining = draining

    def _start(self, agent: PlannedAgent) -> None:
        node, name = agent.node.id, f"{self._boot}-{agent.node.id}"
        self._plan.starting(node, time.monotonic())
        found = cluster.find_actor(name)
        if found is not None:
            log.info("node agent found", node=agent.name)
            self._plan.runs(node)
            self._actors[node] = found
        else:
            self._actors[node] = cluster.start_actor(node, name, self._order_for(agent), self._gpus_of(agent))

    def _gpus_of(self, agent: PlannedAgent) -> float:
        there = agent.node.resources.get("GPU", 0.0)
        return there if self._gpus < 0 else min(there, float(self._gpus))

    def _why_waiting(self, agent: PlannedAgent) -> str:
        gpus = self._gpus_of(agent)
        if not gpus:
            return "Ray has not started its agent yet"
        return f"Ray has not started its agent yet: others use some of its {gpus:g} GPUs (setting ray_gpus)"

    def _wait(self) -> None:
        """Wait until a question to an actor is answered, or it is time to look again."""
        if not self._actors:
            self._stopping.wait(LOOK_INTERVAL_S)
            return
        nodes = {actor: node for node, actor in self._actors.items()}
        for actor in cluster.answered(list(nodes), LOOK_INTERVAL_S):
            self._take_answer(nodes[actor], actor)

    def _take_answer(self, node: str, actor: NodeActor) -> None:
        try:
            why = actor.answer()
        except RayError as problem:
            why = str(problem)
        if not why:
            if actor.starts:
                log.info("node agent started", node=self._plan.agents[node].name)
                self._plan.runs(node)
            actor.ask_for_end()
            return
        log.warning("node agent ended", node=self._plan.agents[node].name, reason=why)
        self._plan.ended(node, why, time.monotonic())
        del self._actors[node]
        actor.kill()

    def _tell(self, problem: str) -> None:
        nodes = [
            RayNode(
                agent.name,
                agent.node.address,
                agent.node.labels,
                agent.node.custom_resources,
                agent.running,
                agent.problem,
            )
            for agent in self._plan.agents.values()
        ]
        report = RayClusterReport(sorted(nodes, key=lambda each: each.name), problem)
        if report != self._reported:
            self._reported = report
            self._report(report)
