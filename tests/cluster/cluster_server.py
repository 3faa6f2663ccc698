"""A real server on the first node of a Ray cluster."""

from __future__ import annotations

from typing import Any

from tests.support import processes
from tests.support.network.nodes import NetworkNode
from tests.support.network.ray_cluster import RayCluster, agents, has_actor
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

JOINED_S = 40.0
"""Seconds within which a node must join, even on a busy machine; on a quiet one it takes three."""
JOB = "workers.jobs.ray_cluster"


class ClusterServer(LemonbusServer):
    """A server with ``placement = "ray"``. When it has ended, it has left nothing on any node."""

    def __init__(self, cluster: RayCluster, *models: str, **settings: Any) -> None:
        self.cluster = cluster
        usual = {
            "placement": "ray",
            "ray_address": cluster.address,
            "cluster_address": f"{cluster.nodes[0].network_node.address}:13306",
            "grace": 60.0,
            "gateway_workers": 1,
        }
        super().__init__(*models, **{**usual, **settings})

    def nodes(self) -> dict[str, str]:
        """Return the nodes besides the head, and their states."""
        answer = self.client.get("/internal/nodes").json()
        return {each["name"]: each["state"] for each in answer["nodes"][1:]}

    def name_of(self, node: NetworkNode) -> str:
        """Return the name under which the server knows a node, empty if it does not."""
        answer = self.client.get("/internal/nodes").json()
        return next((str(each["name"]) for each in answer["nodes"][1:] if each.get("address") == node.address), "")

    def wait_joined(self, count: int = 1) -> None:
        """Wait until other nodes are ready."""
        try:
            wait_for(lambda: list(self.nodes().values()) == ["ready"] * count, f"{count} nodes have joined", JOINED_S)
        except AssertionError as late:
            raise AssertionError(f"{late}: {self.nodes()} {self.problems()}\n{self.last_lines(60)}") from late

    def places(self) -> dict[str, str]:
        """Return the node of each model that is ready."""
        return {each["model_name"]: each["node"] for each in self.state()["models"] if each["state"] == "ready"}

    def drain(self, node: str, *, drained: bool = True) -> None:
        """Give a node no further models, or give it some again."""
        path = f"/internal/nodes/{node}/{'drain' if drained else 'undrain'}"
        assert self.client.post(path, {}).status == 200

    def load_on(self, model: str) -> None:
        """Load a model as soon as the node that it is for says that it can run it."""
        answers: list[int] = []

        def loaded() -> bool:
            answers.append(self.client.post("/v1/load", {"model_name": model}, 60.0).status)
            return answers[-1] == 200

        wait_for(loaded, f"{model} is loaded: {answers[-3:]}; {self.last_lines(30)}", JOINED_S)

    def problems(self) -> list[str]:
        """Return those of health."""
        return list(self.state().get("problems", []))

    def ray_problems(self) -> list[str]:
        """Return those that are about Ray."""
        return [each for each in self.problems() if each.startswith("Ray")]

    def engine_on(self, node: NetworkNode) -> int:
        """Wait until one engine runs on a node; return its pid."""

        def found() -> int:
            pids = [each.pid for each in node.processes() if each.mentions("llama_server")]
            return pids[0] if len(pids) == 1 else 0

        return wait_for(found, f"an engine runs on node {node.number}", JOINED_S)

    def wait_problem(self, text: str, deadline: float = 30.0) -> None:
        """Wait until a problem has this text."""
        wait_for(lambda: any(text in each for each in self.problems()), f"a problem: {text}", deadline)

    def agent_on(self, node: NetworkNode, *, but: int = 0) -> int:
        """Wait until one agent runs on a node, other than this one; return its pid."""

        def found() -> int:
            pids = [each.pid for each in agents(node)]
            return pids[0] if len(pids) == 1 and pids[0] != but else 0

        return wait_for(found, f"an agent runs on node {node.number} besides {but}", JOINED_S)

    def job_pid(self, *, but: int = 0) -> int:
        """Wait until the job that talks to Ray runs, other than this one; return its pid."""

        def found() -> int:
            pids = [each.pid for each in self.process_tree() if each.runs(JOB)]
            return pids[0] if len(pids) == 1 and pids[0] != but else 0

        return wait_for(found, f"the job runs, besides {but}", JOINED_S)

    def assert_nothing_left(self) -> None:
        super().assert_nothing_left()
        for node in self.cluster.others:
            there = node.network_node
            wait_for(lambda there=there: not agents(there), f"no agent is left on node {there.number}")
            wait_for(lambda there=there: not has_actor(there), f"no actor is left on node {there.number}")
            wait_for(lambda there=there: not self._ours(there), f"nothing is left on node {there.number}")

    def _ours(self, node: NetworkNode) -> list[processes.ProcessInfo]:
        return [
            each for each in node.processes() if any(word.startswith(("workers", "supervisor")) for word in each.words)
        ]
