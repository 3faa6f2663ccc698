"""When a worker that has ended is settled: not before its last events were read."""

from __future__ import annotations

from gevent.event import Event

from gateway.bus.worker_subscriptions import WorkerSubscriptions
from protocol.failures import Code, Failure
from protocol.messages.peers import WorkerGone
from tests.support.waiting import DEADLINE

FAILURE = Failure(Code.WORKER_GONE, "it ended")


class FakeEvents:
    """Connections that end when a test says so."""

    def __init__(self) -> None:
        self.connected: set[str] = set()
        self.over: set[str] = set()
        self.steps: list[str] = []
        self.cut: list[tuple[str, str]] = []

    def connect(self, endpoint: str) -> None:
        self.connected.add(endpoint)

    def disconnect(self, endpoint: str) -> None:
        self.connected.remove(endpoint)

    def ended(self, endpoint: str) -> bool:
        return endpoint in self.over

    def cut_off(self, worker: str, node: str) -> None:
        self.cut.append((worker, node))

    def drain_events(self) -> None:
        self.steps.append("read")


def test_a_worker_is_settled_when_its_connection_has_ended_and_was_read() -> None:
    events = FakeEvents()
    subscriptions = WorkerSubscriptions(events, lambda worker, _: events.steps.append(worker), events.cut_off)
    subscriptions.up("w1", "ipc:///w1")
    subscriptions.gone(WorkerGone("w1", FAILURE))
    assert events.steps == [], "its last events may still arrive"
    events.over.add("ipc:///w1")
    subscriptions.disconnected("ipc:///w1")
    assert events.steps == ["read", "w1"]
    assert not events.connected


def test_a_worker_whose_connection_does_not_end_is_settled_after_a_moment() -> None:
    events, settled = FakeEvents(), Event()
    subscriptions = WorkerSubscriptions(events, lambda *_: settled.set(), events.cut_off)
    subscriptions.up("w1", "ipc:///w1")
    subscriptions.gone(WorkerGone("w1", FAILURE))
    assert settled.wait(DEADLINE)
    assert events.steps == ["read"]
    assert not events.connected


def test_what_a_worker_did_that_cannot_be_reached_has_ended_but_the_worker_may_be_reached_again() -> None:
    events, settled = FakeEvents(), []
    subscriptions = WorkerSubscriptions(events, lambda *end: settled.append(end), events.cut_off)
    for worker, endpoint, node in (("w1", "tcp://10.0.0.1:7000", "gpu1"), ("w2", "ipc:///w2", "")):
        subscriptions.up(worker, endpoint, node)
        subscriptions.disconnected(endpoint)
    assert (settled, events.cut) == ([], [("w1", "gpu1")]), (
        "the end of a worker on this node is reported by the supervisor"
    )
    assert subscriptions.knows("w1")
    events.over.add("tcp://10.0.0.1:7000")
    subscriptions.gone(WorkerGone("w1", FAILURE))
    assert settled == [("w1", FAILURE)]
    assert events.connected == {"ipc:///w2"}


def test_a_worker_that_nobody_named_is_settled_at_once() -> None:
    events = FakeEvents()
    subscriptions = WorkerSubscriptions(events, lambda worker, _: events.steps.append(worker), events.cut_off)
    subscriptions.gone(WorkerGone("w1", FAILURE))
    assert events.steps == ["read", "w1"]
