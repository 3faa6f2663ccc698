"""Our calls of Ray, and what it answers in plain words. The only file that imports ray. Calls block."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Collection, Sequence
from typing import Any, Final

import ray
from ray._private import state
from ray.autoscaler import sdk
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from protocol.wire.bus_address import split_address
from workers.jobs.ray_cluster import agent_actor
from workers.jobs.ray_cluster.agent_plan import ClusterNode, RayError

_PROBE_S: Final = 2.0
_SLICE_S: Final = 20.0
"""How long one question to an actor, whether its agent has ended, stays open. A thread of the actor waits for each."""
_THREADS: Final = 16


def connect(gcs: str, namespace: str) -> None:
    """Become a driver of the cluster; raises :class:`RayError`."""
    # Ray itself would try for ever, and the thread that calls it could not be ended.
    try:
        with socket.create_connection(split_address(gcs), _PROBE_S):
            pass
    except OSError as problem:
        raise RayError(
            f"the head of the Ray cluster, {gcs}, does not answer ({problem.strerror or problem})"
        ) from problem
    ray.cloudpickle.register_pickle_by_value(agent_actor)
    try:
        ray.init(address=gcs, namespace=namespace, log_to_driver=False, configure_logging=False)
    except Exception as problem:
        ray.shutdown()
        raise RayError(f"Ray at {gcs} does not accept lemonbus as a driver: {_first_line(problem)}") from problem


def living_nodes() -> list[ClusterNode]:
    """Return the living nodes other than the one of this process. Hangs while the cluster's head is away."""
    own, draining = ray.get_runtime_context().get_node_id(), _draining_nodes()
    return [
        ClusterNode(
            each["NodeID"],
            each["NodeManagerAddress"],
            each["NodeName"],
            each["NodeManagerHostname"],
            each["Labels"],
            each["Resources"],
            each["NodeID"] in draining,
        )
        for each in ray.nodes()
        if each["Alive"] and each["NodeID"] != own
    ]


def _draining_nodes() -> Collection[str]:
    """Return the nodes where Ray is about to end. Only an inner function of Ray tells; without it, agents end with their raylet."""
    ask = getattr(getattr(state, "state", None), "get_draining_nodes", dict)
    return set(ask())


def request_resources(bundles: Sequence[dict[str, float]]) -> None:
    """Tell the autoscaler what further nodes must have, instead of what it was told before."""
    sdk.request_resources(bundles=list(bundles))


class NodeActor:
    """The actor of one node, and one question to it that is not answered yet."""

    def __init__(self, handle: Any, question: Any, *, starts: bool) -> None:
        """Use :func:`start_actor` or :func:`find_actor`."""
        self._handle = handle
        self.question = question
        """Ray's reference to the answer."""
        self.starts = starts
        """Whether the question is whether the agent could be started; otherwise it is why it has ended."""

    def ask_for_end(self) -> None:
        """Ask again why the agent has ended."""
        self.starts = False
        self.question = self._handle.wait.remote(_SLICE_S)

    def answer(self) -> str:
        """Return the answer to the question; raises :class:`RayError` if the actor has ended."""
        try:
            return str(ray.get(self.question, timeout=_PROBE_S))
        except Exception as problem:
            raise RayError(f"the actor of Ray that holds its agent has ended: {_first_line(problem)}") from problem

    def drain(self) -> None:
        """Tell the agent to end once its streams have ended. Does not wait."""
        with contextlib.suppress(Exception):
            self._handle.drain.remote()

    def kill(self) -> None:
        """End the actor, and its agent with it. Does not wait."""
        with contextlib.suppress(Exception):
            ray.kill(self._handle)


def find_actor(name: str) -> NodeActor | None:
    """Return the actor of this name that an earlier driver has started, None if there is none."""
    try:
        handle = ray.get_actor(name)
    except ValueError:
        return None
    return NodeActor(handle, handle.wait.remote(_SLICE_S), starts=False)


def start_actor(node: str, name: str, order: str, gpus: float) -> NodeActor:
    """Ask Ray for an actor on a node, and the actor for an agent with this order. Does not wait."""
    # Detached: it outlives this driver, but not its agent.
    options = {
        "name": name,
        "lifetime": "detached",
        "num_cpus": 0,
        "num_gpus": gpus,
        "max_restarts": 0,
        "max_concurrency": _THREADS,
        "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False),
    }
    handle = ray.remote(agent_actor.AgentActor).options(**options).remote()
    return NodeActor(handle, handle.start.remote(order), starts=True)


def answered(actors: Sequence[NodeActor], seconds: float) -> list[NodeActor]:
    """Wait until questions are answered, this long at most; return whose are."""
    by_question = {each.question: each for each in actors}
    ready, _ = ray.wait(list(by_question), num_returns=1, timeout=seconds, fetch_local=False)
    return [by_question[each] for each in ready]


def _first_line(problem: BaseException) -> str:
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return (lines[0] if lines else type(problem).__name__)[:300]
