"""A batch's requests run when nothing else needs the model, give their slots back, and evict nothing that was just used."""

from __future__ import annotations

from protocol.failures import Code, Failure
from protocol.ids import RequestKey
from protocol.messages.caller import Caller
from protocol.messages.work import SubmitRequest
from protocol.worker_states import WorkerState
from supervisor.scheduler.loads.assignment import LAST_ORDER
from supervisor.scheduler.queue.batches import UNUSED_S
from supervisor.scheduler.queue.request_queue import RequestQueue
from supervisor.scheduler.queue.work_items import BATCH_ORDER, QueuedRequest
from tests.supervisor.scheduler.simulation import Simulation, loaded


def held(sim: Simulation, name: str = "a") -> Failure | None:
    """Return why a batch's request would have to wait now."""
    return sim.scheduler.batch_refusal(SubmitRequest(0, 1, name, "chat/completions", "label", batch=True), name)


def slots(sim: Simulation) -> int:
    return sim.state.models["a"].slots


def given_back(sim: Simulation, keys: list[RequestKey]) -> list[RequestKey]:
    """Return those of these requests that were ended for others; their engines stop working on them."""
    ended = [key for key in keys if key in sim.refusals]
    assert all(sim.refusals[key].code is Code.BATCH_WAITS for key in ended)
    for key in ended:
        if any(key in worker.running for worker in sim.workers.values()):
            sim.finish(key, Code.BATCH_WAITS)
    return ended


def test_it_runs_while_a_slot_is_free_and_nothing_waits() -> None:
    sim = loaded("a")
    first = [sim.submit("a", batch=True) for _ in range(slots(sim))]
    assert sim.order == first
    refused = held(sim)
    assert refused is not None
    assert refused.code is Code.BATCH_WAITS
    assert refused.retry_after
    sim.finish(first[0])
    assert held(sim) is None


def test_it_gives_its_slot_to_another_request_the_newest_first() -> None:
    sim = loaded("a")
    batch = [sim.submit("a", batch=True) for _ in range(slots(sim))]
    other = sim.submit("a")
    assert given_back(sim, batch) == batch[-1:]
    assert sim.order == [*batch, other]
    assert held(sim) is not None, "no slot is free"


def test_it_keeps_its_slot_if_another_one_is_free() -> None:
    sim = loaded("a")
    batch = sim.submit("a", batch=True)
    other = sim.submit("a")
    assert sim.order == [batch, other]
    assert batch not in sim.refusals


def test_each_request_that_waits_gets_one_slot_of_a_batch() -> None:
    sim = loaded("a")
    batch = [sim.submit("a", batch=True) for _ in range(slots(sim))]
    others = [sim.submit("a") for _ in range(2)]
    assert sorted(given_back(sim, batch)) == batch[-2:]
    assert sim.order == [*batch, *others]


def test_it_may_have_its_model_loaded() -> None:
    sim = Simulation()
    assert held(sim) is None, "it may have its model loaded"
    batch = sim.submit("a", batch=True, caller="one")
    assert held(sim) is not None, "one of them is enough for that"
    sim.run_until_idle()
    assert sim.order == [batch]
    sim.finish(batch)


def test_it_is_the_last_that_a_loaded_model_serves() -> None:
    sim = Simulation()
    batch = sim.submit("a", batch=True, caller="one")
    others = [sim.submit("a", caller="two") for _ in range(2)]
    sim.run_until_idle()
    assert sim.order[:2] == others
    for key in others:
        sim.finish(key)
    assert sim.order == [*others, batch]


def test_another_keys_request_comes_first_whatever_the_keys_have_used() -> None:
    queue = RequestQueue()
    for number, (name, order) in enumerate([("a", BATCH_ORDER + 1), ("a", BATCH_ORDER + 2), ("b", 3)]):
        request = SubmitRequest(number, 1, "m", "chat/completions", "label", caller=Caller(name))
        queue.add(QueuedRequest(RequestKey("g1", number, 1), request, b"", order, 0.0))
    assert list(queue.heads(LAST_ORDER)) == ["b"]
    queue.remove(RequestKey("g1", 2, 1))
    assert list(queue.heads(LAST_ORDER)) == ["a"]


def test_a_model_that_was_just_used_does_not_leave_for_it() -> None:
    sim = loaded("a")
    sim.finish(sim.submit("a"))
    early = sim.submit("b", batch=True)
    sim.run_until_idle()
    assert sim.refusals[early].code is Code.BATCH_WAITS
    assert sim.serving("a")
    sim.pass_time(UNUSED_S + 1)
    late = sim.submit("b", batch=True)
    sim.run_until_idle()
    assert late in sim.order


def test_another_request_has_the_model_loaded_whatever_was_used() -> None:
    sim = loaded("a")
    sim.finish(sim.submit("a"))
    other = sim.submit("b")
    sim.run_until_idle()
    assert other in sim.order


def test_its_model_leaves_at_once_for_another_request() -> None:
    sim = loaded("a")
    batch = sim.submit("a", batch=True)
    other = sim.submit("b")
    sim.run_until_idle()
    assert given_back(sim, [batch]) == [batch]
    sim.run_until_idle()
    assert other in sim.order
    assert not sim.of_state(WorkerState.DRAINING)


def test_its_worker_is_told_once() -> None:
    sim = loaded("a")
    batch = [sim.submit("a", batch=True) for _ in range(slots(sim))]
    sim.submit("a")
    sim.pass_time(1.0)
    assert sum(key in sim.refusals for key in batch) == 1
