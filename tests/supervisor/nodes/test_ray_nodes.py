"""The supervisor's side of the job that talks to Ray: it runs, is taken over, and what it reports is shown."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from protocol import RELEASE
from protocol.messages.ray_cluster import RayClusterReport, RayNode, RequestRayResources, WatchRayCluster
from supervisor.nodes.ray_nodes import FIRST_PAUSE_S, LONGEST_PAUSE_S, MODULE, STABLE_S, RayNodes
from supervisor.runtime.jobs import OnEnded

NODE = RayNode("gpu1", "10.0.0.2", agent=True)


class RayNodesHarness:
    """The parts of a supervisor that it uses."""

    def __init__(self) -> None:
        self.now, self.closing = 1000.0, False
        self.jobs: list[tuple[str, OnEnded]] = []
        self.sent: list[tuple[str, Any]] = []
        self._timers: list[tuple[float, Callable[[], None]]] = []
        loop: Any = SimpleNamespace(now=lambda: self.now, call_later=self._later)
        jobs: Any = SimpleNamespace(start=self._start)
        bus: Any = SimpleNamespace(send=lambda peer, message: self.sent.append((peer, message)))
        self.nodes = RayNodes(loop, jobs, bus, lambda: self.closing)

    def _later(self, seconds: float, callback: Callable[[], None]) -> None:
        self._timers.append((self.now + seconds, callback))

    def _start(self, module: str, on_ended: OnEnded, order: Any) -> str:
        assert (module, order) == (MODULE, WatchRayCluster(RELEASE))
        self.jobs.append((f"j{len(self.jobs)}", on_ended))
        return self.jobs[-1][0]

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        due = [callback for at, callback in self._timers if at <= self.now]
        self._timers = [(at, callback) for at, callback in self._timers if at > self.now]
        for callback in due:
            callback()

    def end_job(self, why: str = "exit 1") -> None:
        job, ended = self.jobs[-1]
        ended(job, why)

    def report(self, *nodes: RayNode, problem: str = "", job: str = "") -> None:
        handler = self.nodes.handlers()[RayClusterReport]
        handler(job or self.jobs[-1][0], RayClusterReport([*nodes], problem), b"")


@pytest.fixture
def harness() -> RayNodesHarness:
    return RayNodesHarness()


def test_a_job_that_ends_is_started_again_after_pauses_that_grow(harness: RayNodesHarness) -> None:
    harness.nodes.start()
    pause = FIRST_PAUSE_S
    for count in range(1, 9):
        assert len(harness.jobs) == count
        harness.end_job()
        harness.pass_time(pause - 0.01)
        assert len(harness.jobs) == count
        harness.pass_time(0.01)
        pause = min(LONGEST_PAUSE_S, 2 * pause)
    harness.pass_time(STABLE_S)
    harness.end_job()
    harness.pass_time(FIRST_PAUSE_S)
    assert len(harness.jobs) == 10


def test_none_is_started_while_the_server_ends(harness: RayNodesHarness) -> None:
    harness.nodes.start()
    harness.closing = True
    harness.end_job()
    harness.pass_time(LONGEST_PAUSE_S)
    assert len(harness.jobs) == 1


def test_the_job_of_an_earlier_supervisor_goes_on(harness: RayNodesHarness) -> None:
    ended = harness.nodes.take_over("j7", WatchRayCluster(RELEASE))
    assert ended is not None
    harness.nodes.start()
    assert harness.jobs == []
    harness.report(NODE, job="j7")
    assert harness.nodes.nodes() == [NODE]
    ended("j7", "SIGKILL")
    harness.pass_time(FIRST_PAUSE_S)
    assert len(harness.jobs) == 1


def test_the_job_of_another_release_does_not_go_on_nor_does_a_second_one(harness: RayNodesHarness) -> None:
    assert harness.nodes.take_over("j7", WatchRayCluster("0.0.1")) is None
    assert harness.nodes.take_over("j7", WatchRayCluster(RELEASE)) is not None
    assert harness.nodes.take_over("j8", WatchRayCluster(RELEASE)) is None


def test_problems_are_sentences_and_the_nodes_that_were_known_stay(harness: RayNodesHarness) -> None:
    harness.nodes.start()
    assert harness.nodes.problems() == ["Ray: Ray has not answered yet"]
    harness.report(NODE, RayNode("gpu2", "10.0.0.3", problem="its agent ended with exit code 2"))
    assert harness.nodes.problems() == ["Ray's node gpu2: its agent ended with exit code 2"]
    harness.end_job("SIGKILL")
    assert harness.nodes.problems()[0] == "Ray: the job that talks to it has ended (SIGKILL); what runs goes on"
    assert [node.name for node in harness.nodes.nodes()] == ["gpu1", "gpu2"]
    harness.report(job="j0")  # too late: that job has ended
    assert len(harness.nodes.nodes()) == 2


def test_resources_are_requested_and_again_from_a_job_that_knows_of_no_request(harness: RayNodesHarness) -> None:
    harness.nodes.request_resources([{"npu": 1.0}])
    assert harness.sent == []
    harness.nodes.start()
    harness.report(NODE)
    request = RequestRayResources([{"npu": 1.0}])
    assert harness.sent == [("j0", request)]
    harness.report(NODE)
    assert len(harness.sent) == 1
    harness.end_job()
    harness.pass_time(FIRST_PAUSE_S)
    harness.report(NODE)
    assert harness.sent[1:] == [("j1", request)]
    harness.nodes.request_resources([])
    assert harness.sent[2:] == [("j1", RequestRayResources([]))]
