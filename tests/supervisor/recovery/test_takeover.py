"""The state of a supervisor that takes over: which peers it waits for, what it keeps, and what it reports at the end."""

from __future__ import annotations

import os
import socket
from unittest.mock import Mock

import pytest

from protocol.failures import Code
from protocol.messages.model_files import Pulled, StartInspection, StartPull
from protocol.messages.peers import Pong, Shutdown, Welcome, WorkerGone, WorkerUp
from protocol.messages.readiness import ServerReadiness
from protocol.messages.recovery import (
    AttemptSnapshot,
    GatewaySnapshot,
    JobSnapshot,
    Recovered,
    RequestSnapshot,
    WorkerSnapshot,
)
from protocol.messages.work import AttemptEnded, Cancel, Granted, Refused, Run
from protocol.wire import endpoints, envelope
from protocol.worker_states import WorkerState
from supervisor.recovery import kept_messages, takeover
from supervisor.recovery.taken_over_nodes import TakenOverNodes
from supervisor.scheduler.model_states import ModelState
from tests.supervisor.recovery.recovery_harness import MODEL, TakingOver, ready, submit


def test_nothing_is_granted_before_all_have_reported_and_then_in_the_old_order(taking_over: TakingOver) -> None:
    worker, gateway = taking_over.survivor("worker", "w1"), taking_over.gateway("g1")
    taking_over.begin()
    other = taking_over.peer("gateway", "g2", 1)
    worker.hello(ready())
    other.hello(GatewaySnapshot([RequestSnapshot(1, 1, 6.0)]))
    other.send(submit(1, 6.0))
    taking_over.run_until(lambda: worker.got(Welcome) and other.got(Welcome))
    assert not taking_over.over
    gateway.hello(GatewaySnapshot([RequestSnapshot(5, 1, 7.0)]))
    taking_over.run_until(lambda: gateway.got(Welcome))
    assert not taking_over.over, "it has announced a request"
    gateway.send(submit(9, None))
    gateway.send(submit(5, 7.0))
    taking_over.run_until(lambda: worker.got(Run) and gateway.got(Recovered))
    kinds = [type(message) for message in gateway.read() if not isinstance(message, ServerReadiness)]
    assert kinds[:3] == [Welcome, WorkerUp, Recovered]
    assert gateway.got(Recovered) == [Recovered(["w1"])]
    assert gateway.got(WorkerUp) == [WorkerUp("w1", worker.endpoint)]
    assert [run.number for run in worker.got(Run)] == [5]
    assert [waiting.key.number for waiting in taking_over.components.scheduler._state.models[MODEL].queue] == [1, 9]


def test_what_runs_goes_on_and_its_end_is_not_lost(taking_over: TakingOver) -> None:
    worker, gateway = taking_over.survivor("worker", "w1"), taking_over.gateway("g1")
    taking_over.begin()
    worker.hello(ready(AttemptSnapshot("g1", 1, 1, 1, 5.0), AttemptSnapshot("g1", 2, 1, 1, 5.0), slots=3))
    worker.send(AttemptEnded("g1", 2, 1))
    gateway.hello(GatewaySnapshot([RequestSnapshot(1, 1, 4.0), RequestSnapshot(3, 1, 4.0, "w1")]))
    gateway.send(submit(1, 4.0))
    taking_over.run_until(lambda: gateway.got(Granted) and gateway.got(Refused) and worker.got(Cancel))
    assert list(taking_over.components.scheduler._state.models[MODEL].grants) == [("g1", 1, 1)]
    assert [grant.number for message in gateway.got(Granted) for grant in message.grants] == [1]
    assert [(refused.number, refused.failure.code) for refused in gateway.got(Refused)] == [(3, Code.RETURNED)]
    assert [cancel.number for cancel in worker.got(Cancel)] == [2]
    assert worker.got(Run) == []


def test_a_process_that_does_not_report_is_killed(taking_over: TakingOver, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, _, gateway = (
        taking_over.survivor("worker", "w1"),
        taking_over.survivor("worker", "w2"),
        taking_over.gateway("g1"),
    )
    silent = taking_over.survivor("job", "j1")
    taking_over.begin()
    worker.hello(ready())
    gateway.hello(GatewaySnapshot())
    silent.send(Pulled(MODEL))  # without a Hello it is not ours
    taking_over.run_until(lambda: worker.got(Welcome) and gateway.got(Welcome))
    monkeypatch.setattr(takeover, "TIMEOUT_S", 0.3)
    taking_over.run_until(lambda: taking_over.over)
    assert taking_over.components.scheduler._state.models[MODEL].state is ModelState.READY
    taking_over.run_until(lambda: not taking_over.is_alive(1) and not taking_over.is_alive(3))
    assert taking_over.is_alive(0)
    taking_over.run_until(lambda: gateway.got(WorkerGone))


def test_the_time_of_a_stopped_supervisor_does_not_count(taking_over: TakingOver) -> None:
    worker = taking_over.survivor("worker", "w1")
    taking_over.begin()
    taking_over.passed = 60.0
    for _ in range(3):
        taking_over.loop.run_once(0.03)
    assert not taking_over.over
    worker.hello(ready())
    taking_over.run_until(lambda: taking_over.over)
    assert taking_over.is_alive(0)


def test_a_worker_that_starts_is_not_waited_for(taking_over: TakingOver) -> None:
    worker = taking_over.survivor("worker", "w1", connected=False)
    taking_over.begin()
    taking_over.run_until(lambda: taking_over.over)
    workers = taking_over.components.scheduler._state.workers
    assert workers["w1"].state is WorkerState.SPAWNED
    worker.hello(WorkerSnapshot())
    taking_over.run_until(lambda: worker.got(Welcome))
    assert workers["w1"].state is WorkerState.SPARE


def test_a_worker_of_another_release_is_waited_for(taking_over: TakingOver) -> None:
    """How that release marks a worker that has reported is not known."""
    worker = taking_over.survivor("worker", "w1", connected=False, fingerprint="0.0.9-6-files-settings")
    taking_over.begin()
    taking_over.loop.run_once(0.03)
    assert not taking_over.over
    worker.hello(ready())
    taking_over.run_until(lambda: taking_over.over)
    assert taking_over.components.scheduler._state.models[MODEL].state is ModelState.READY


def test_only_the_last_snapshot_of_a_gateway_that_reconnects_counts(taking_over: TakingOver) -> None:
    worker, gateway = taking_over.survivor("worker", "w1"), taking_over.gateway("g1")
    taking_over.begin()
    gateway.hello(GatewaySnapshot([RequestSnapshot(1, 1, 5.0), RequestSnapshot(2, 1, 6.0)]))
    gateway.send(submit(1, 5.0))
    taking_over.run_until(lambda: gateway.got(Welcome))
    gateway.reconnect()
    gateway.hello(GatewaySnapshot([RequestSnapshot(2, 1, 6.0)]))
    gateway.send(submit(2, 6.0))
    worker.hello(ready())
    taking_over.run_until(lambda: worker.got(Run))
    assert [run.number for run in worker.got(Run)] == [2]
    assert not taking_over.components.scheduler._state.models[MODEL].queue


def test_a_request_that_is_cancelled_is_not_waited_for(taking_over: TakingOver) -> None:
    gateway = taking_over.gateway("g1")
    taking_over.begin()
    gateway.hello(GatewaySnapshot([RequestSnapshot(1, 1, 5.0)]))
    gateway.send(Cancel("g1", 1, 1, "the client left"))
    taking_over.run_until(lambda: taking_over.over)


def test_a_peer_of_another_server_is_sent_away(taking_over: TakingOver) -> None:
    worker = taking_over.survivor("worker", "w1")
    taking_over.begin()
    strangers = [taking_over.peer("worker", "w9", 1), taking_over.peer("job", "j9", 1)]
    for stranger in strangers:
        stranger.hello(WorkerSnapshot())
    taking_over.run_until(lambda: all(stranger.got(Shutdown) for stranger in strangers))
    worker.hello(ready())
    taking_over.run_until(lambda: taking_over.over)
    assert list(taking_over.components.scheduler._state.workers) == [
        "w1",
        *taking_over.components.scheduler._state.workers.keys() - {"w1"},
    ]
    late = taking_over.peer("job", "j8", 1)
    late.hello(JobSnapshot())
    taking_over.run_until(lambda: late.got(Shutdown))


@pytest.mark.parametrize("snapshot", [WorkerSnapshot(WorkerState.READY), b"no snapshot"])
def test_a_worker_that_cannot_be_understood_is_killed(taking_over: TakingOver, snapshot: object) -> None:
    worker = taking_over.survivor("worker", "w1")
    taking_over.begin()
    worker.hello(snapshot)
    taking_over.run_until(lambda: taking_over.over and not taking_over.is_alive(0))
    assert worker.got(Welcome) == []


def test_a_worker_that_ends_meanwhile_is_not_waited_for(taking_over: TakingOver) -> None:
    taking_over.survivor("worker", "w1")
    taking_over.begin()
    taking_over.components.workers.kill("w1")
    taking_over.run_until(lambda: taking_over.over)
    assert "w1" not in taking_over.components.scheduler._state.workers


def test_a_download_goes_on_and_another_job_does_not(taking_over: TakingOver) -> None:
    pull, other = taking_over.survivor("job", "j1"), taking_over.survivor("job", "j2")
    taking_over.begin()
    pull.hello(JobSnapshot(envelope.encode(StartPull(MODEL, [], "/cache"))))
    other.hello(JobSnapshot(envelope.encode(StartInspection("a/b"))))
    taking_over.run_until(lambda: taking_over.over)
    assert taking_over.components.download_registry.running() == [MODEL]
    taking_over.run_until(lambda: not taking_over.is_alive(1))
    assert taking_over.is_alive(0)
    taking_over.run_until(lambda: "j2" not in taking_over.components.jobs.names())
    assert "j1" in taking_over.components.jobs.names()


def test_a_job_that_has_not_begun_is_not_waited_for(taking_over: TakingOver) -> None:
    job = taking_over.survivor("job", "j1", connected=False)
    taking_over.begin()
    job.hello(JobSnapshot(envelope.encode(StartPull(MODEL, [], "/cache"))))
    taking_over.run_until(lambda: taking_over.over and not taking_over.is_alive(0))
    assert taking_over.components.download_registry.running() == [], "what is asked for again is begun again"


def test_files_of_what_died_with_the_supervisor_are_removed(taking_over: TakingOver) -> None:
    worker, gateway = taking_over.survivor("worker", "w1"), taking_over.gateway("g1")
    folder = taking_over.runtime.path
    bodies, bound, unbound = endpoints.spool(folder), folder / "w1", folder / "w2"
    living = socket.socket(socket.AF_UNIX)
    living.bind(str(bound))
    living.listen()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(unbound))
    for name in ("g1-7", "g2-7", "g3-7"):
        (bodies / name).touch()
    for path in (bound, unbound, *bodies.glob("g[12]-7")):
        os.utime(path, (1.0, 1.0))
    taking_over.begin()
    worker.hello(ready())
    gateway.hello(GatewaySnapshot())
    taking_over.run_until(lambda: taking_over.over)
    taking_over.run_until(lambda: not unbound.exists())
    assert bound.exists()
    living.close()
    assert {body.name for body in bodies.iterdir()} == {"g1-7", "g3-7"}, "g3 may be a gateway that has just begun"


def test_an_exception_costs_the_workers_and_not_the_server(
    taking_over: TakingOver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise KeyError("a mistake")

    monkeypatch.setattr(taking_over.components.scheduler, "recovered", fails)
    worker, gateway = taking_over.survivor("worker", "w1"), taking_over.gateway("g1")
    taking_over.begin()
    worker.hello(ready())
    gateway.hello(GatewaySnapshot([RequestSnapshot(1, 1, 4.0, "w1")]))
    taking_over.run_until(lambda: gateway.got(Recovered) and not taking_over.is_alive(0))
    assert gateway.got(Recovered) == [Recovered([])], "its attempts fail, and are tried again"
    assert taking_over.components.errors.count == 1


def test_a_shutdown_waits_until_it_is_over(taking_over: TakingOver) -> None:
    worker = taking_over.survivor("worker", "w1")
    taking_over.begin()
    taking_over.supervisor.shutdown.begin()
    taking_over.loop.run_once(0.01)
    assert not taking_over.components.scheduler._state.closing
    worker.hello(ready())
    taking_over.run_until(lambda: worker.got(Shutdown))


def test_what_is_kept_is_bounded(taking_over: TakingOver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_messages, "MAX_MESSAGES", 2)
    worker, gateway = taking_over.survivor("worker", "w1"), taking_over.gateway("g1")
    taking_over.begin()
    gateway.hello(GatewaySnapshot())
    for number in (1, 2, 3):
        gateway.send(submit(number, None))
    gateway.send(Pong(1))
    taking_over.run_until(lambda: gateway.got(Refused))
    assert [(refused.number, refused.failure.code) for refused in gateway.got(Refused)] == [(3, Code.OVERLOADED)]
    worker.hello(ready())
    taking_over.run_until(lambda: worker.got(Run))


def test_an_agent_that_was_silent_before_holds_up_no_takeover_and_gateways_hear_which_nodes_there_are(
    taking_over: TakingOver, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = Mock()
    agents.handlers.return_value = {}
    agents.expect.return_value = {"a1": 0.1}
    agents.take_over.return_value = ["gpu2"]
    monkeypatch.setattr(TakenOverNodes, "timeout", 600.0)
    monkeypatch.setattr(taking_over.components.nodes, "take_over", lambda handshake: TakenOverNodes(agents, handshake))
    gateway = taking_over.gateway("g1")
    taking_over.begin()
    gateway.hello(GatewaySnapshot())
    taking_over.run_until(lambda: gateway.got(Recovered))
    assert gateway.got(Recovered) == [Recovered([], ["gpu2"])]
