"""Processes of another version of the protocol that a new supervisor finds: when it tells them to leave, and what they may finish."""

from __future__ import annotations

from protocol import VERSION
from protocol.messages.peers import PauseAccepting, Shutdown
from protocol.messages.recovery import GatewaySnapshot, Recovered, RequestSnapshot
from protocol.messages.work import Refused
from tests.supervisor.recovery.recovery_harness import TakingOver


def test_a_worker_of_another_version_may_finish(taking_over: TakingOver) -> None:
    worker, gateway = taking_over.survivor("worker", "w1"), taking_over.gateway("g1")
    taking_over.begin()
    worker.hello(b"whatever that version says", version=VERSION + 1)
    gateway.hello(GatewaySnapshot([RequestSnapshot(1, 1, 5.0, "w1")]))
    taking_over.run_until(lambda: worker.got(Shutdown) and gateway.got(Recovered))
    assert worker.got(Shutdown)[0].grace > 0
    assert gateway.got(Recovered) == [Recovered(["w1"])], "its streams go on"
    assert gateway.got(Refused) == []
    assert taking_over.is_alive(0)


def test_no_process_of_another_version_leaves_before_a_gateway_of_this_one_serves(taking_over: TakingOver) -> None:
    worker = taking_over.survivor("worker", "w1")
    gateway, former = taking_over.gateway("g1"), taking_over.gateway("g2")
    taking_over.begin()
    worker.hello(b"whatever that version says", version=VERSION + 1)
    former.hello(b"whatever that version says", version=VERSION + 1)
    taking_over.run_until(lambda: former.got(PauseAccepting))
    assert (worker.got(Shutdown), former.got(Shutdown)) == ([], [])
    gateway.hello(GatewaySnapshot())
    taking_over.run_until(lambda: worker.got(Shutdown) and former.got(Shutdown))
