"""Each attempt ends once: the supervisor gets one report, and its gateway gets nothing afterwards."""

from __future__ import annotations

import pytest

from protocol.failures import Code, Failure
from protocol.ids import RequestKey, hold_topic, topic
from protocol.messages.events import Event, EventKind, failure_of
from protocol.messages.recovery import MAX_ENDED, WorkerSnapshot
from protocol.messages.work import AttemptEnded, Run
from protocol.worker_states import WorkerState
from tests.workers.requests.attempt_harness import Worker, begin_answer, end_answer
from workers.requests.attempt import END_BATCH_DELAY_S, end_delay
from workers.worker.snapshot import ModelRecord, worker_snapshot


def test_a_gateway_lets_an_engine_wait_and_then_the_engine_is_not_judged(worker: Worker) -> None:
    worker.run(1)
    key = RequestKey("g", 1, 1)
    assert worker.requests.busy()
    worker.bus.on_subscription(True, hold_topic(key))
    assert (worker.pool.holds, worker.requests.busy()) == ([True], False)
    worker.run(2)
    assert worker.requests.busy(), "another request is judged"
    worker.bus.on_subscription(False, hold_topic(key))
    worker.bus.on_subscription(True, hold_topic(RequestKey("g", 9, 1)))
    assert (worker.pool.holds, worker.requests.busy()) == ([True, False], True)


def test_a_stopping_attempt_does_not_wait(worker: Worker) -> None:
    """This engine runs a cancelled request to its end, which would never come."""
    worker.run(1)
    key = RequestKey("g", 1, 1)
    worker.bus.on_subscription(True, hold_topic(key))
    worker.requests.cancel(key, Code.CANCELLED)
    worker.bus.on_subscription(False, hold_topic(key))
    worker.bus.on_subscription(True, hold_topic(key))
    assert (worker.pool.holds, worker.requests.busy()) == ([True, False], True)


def test_a_complete_answer_ends_its_attempt(worker: Worker) -> None:
    worker.run(1)
    worker.run(2)
    for count, attempt in enumerate(worker.pool.attempts):
        assert (len(worker.requests), worker.empty) == (2 - count, 0)
        begin_answer(attempt)
        end_answer(attempt)
    worker.requests.cancel(RequestKey("g", 1, 1), Code.CANCELLED)
    assert worker.ends() == [(1, ""), (2, "")]
    assert worker.event_kinds(1) == [EventKind.DELTA, EventKind.DONE]
    assert (len(worker.requests), worker.empty) == (0, 1)


@pytest.mark.parametrize(
    ("begun", "answered", "order"),
    [
        (1, 1, [EventKind.DONE, AttemptEnded]),
        (2, 2, [EventKind.DONE, EventKind.DONE, AttemptEnded, AttemptEnded]),
        (3, 1, [AttemptEnded, EventKind.DONE]),
        (4, 2, [AttemptEnded, EventKind.DONE, AttemptEnded, EventKind.DONE]),
        (4, 3, [AttemptEnded, EventKind.DONE, AttemptEnded, EventKind.DONE, EventKind.DONE, AttemptEnded]),
    ],
    ids=["alone", "two of four slots", "three slots at work", "all slots at work", "until half of the slots are free"],
)
def test_while_half_of_the_slots_are_at_work_an_end_is_reported_before_its_answer(
    worker: Worker, begun: int, answered: int, order: list[object]
) -> None:
    for number in range(1, begun + 1):
        worker.run(number)
    for attempt in worker.pool.attempts[:answered]:
        begin_answer(attempt)
        end_answer(attempt)
        worker.loop.run_once(0.0)
    worker.bus.flush()
    kinds = [each.kind if isinstance(each, Event) else type(each) for each in worker.bus.outgoing]
    assert [kind for kind in kinds if kind in order] == order


def test_an_exception_while_the_engines_output_is_read_costs_no_slot(worker: Worker) -> None:
    def fail() -> None:
        raise RuntimeError("a bug")

    worker.requests.line_attribution.read_output = fail
    worker.run(1)
    worker.run(2)
    for attempt in worker.pool.attempts:
        begin_answer(attempt)
        end_answer(attempt)
    assert worker.ends() == [(1, ""), (2, "")]
    assert worker.event_kinds(2) == [EventKind.DELTA, EventKind.DONE]
    assert (len(worker.requests), worker.empty) == (0, 1)
    assert worker.loop.errors == 4, "before both began, before the first ended, and after the second"


def test_a_cancelled_attempt_ends_with_the_engines_answer_and_publishes_nothing(worker: Worker) -> None:
    worker.run(1)
    begin_answer(worker.pool.attempts[0])
    for _ in range(2):
        worker.requests.cancel(RequestKey("g", 1, 1), Code.CANCELLED)
    assert worker.ends() == [], "the engine still works on it"
    assert worker.requests.busy()
    end_answer(worker.pool.attempts[0])
    assert worker.ends() == [(1, Code.CANCELLED)]
    assert worker.event_kinds(1) == []
    assert (len(worker.requests), worker.empty) == (0, 1)


def test_a_waiting_attempt_that_is_cancelled_ends_at_once_and_never_starts(worker: Worker) -> None:
    worker.run(1, gateway="late")
    worker.requests.cancel(RequestKey("late", 1, 1), Code.CANCELLED)
    worker.bus.on_subscription(True, topic("late"))
    assert worker.ends() == [(1, Code.CANCELLED)]
    assert worker.pool.attempts == []
    assert worker.empty == 1


def test_when_the_engine_dies_waiting_attempts_are_returned_and_running_ones_fail(worker: Worker) -> None:
    worker.run(1, gateway="late")
    worker.run(2)
    worker.run(3)
    worker.requests.cancel(RequestKey("g", 3, 1), Code.CANCELLED)
    worker.requests.fail_all(Failure(Code.BACKEND_DIED, "the engine died"))
    worker.bus.on_subscription(True, topic("late"))
    assert worker.ends() == [(1, Code.RETURNED)], "the death of the engine ends the others"
    assert (worker.event_kinds(2), worker.event_kinds(3)) == ([EventKind.FAILED], [])
    assert failure_of(worker.bus.events[-1]).code == Code.BACKEND_DIED
    assert (len(worker.requests), worker.empty) == (0, 0)


@pytest.mark.parametrize("gateway", ["g", "late"], ids=["subscribed", "not subscribed"])
def test_a_run_that_crosses_the_engines_death_is_returned_and_does_not_start_at_the_next_engine(
    worker: Worker, gateway: str
) -> None:
    worker.requests.fail_all(Failure(Code.BACKEND_DIED, "the engine died"))
    worker.run(1, gateway)
    assert worker.ends() == [(1, Code.RETURNED)], "its grant ended with the engine; its gateway must ask again"
    assert len(worker.requests) == 0, "an unload waits for no attempt that no engine will ever see"
    worker.engine_ready()
    worker.bus.on_subscription(True, topic("late"))
    assert worker.pool.attempts == []
    assert worker.ends() == [(1, Code.RETURNED)]
    assert worker.event_kinds(1) == ([EventKind.FAILED] if gateway == "g" else []), "at most once"


def snapshot_of(worker: Worker, state: WorkerState = WorkerState.READY) -> WorkerSnapshot:
    """Its ages are those at the start of the clock: they only compare."""
    requests = worker.requests
    return worker_snapshot(state, ModelRecord(), requests.attempts, requests.ended, requests.last_use, 0, 0.0)


def test_the_snapshot_has_each_attempt_until_its_end_and_then_its_key(worker: Worker) -> None:
    def snapshot() -> WorkerSnapshot:
        return snapshot_of(worker)

    worker.run(1)
    worker.requests.run(Run("g", 2, 3, "m", "completions", "req-2", stream=True, weight=4), b"{}")
    one, two = snapshot().attempts
    assert (one.number, one.attempt, one.weight) == (1, 1, 1)
    assert (two.number, two.attempt, two.weight) == (2, 3, 4)
    assert one.age >= two.age == snapshot().last_use
    begin_answer(worker.pool.attempts[0])
    end_answer(worker.pool.attempts[0])
    assert [each.number for each in snapshot().attempts] == [2]
    assert [(each.key, each.serial) for each in snapshot().ended] == [(RequestKey("g", 1, 1), 1)]
    assert snapshot().last_use < two.age


def test_the_snapshot_has_no_end_of_which_only_the_supervisor_can_tell_the_gateway(worker: Worker) -> None:
    worker.run(1, gateway="late")
    worker.run(2)
    worker.run(3)
    worker.requests.cancel(RequestKey("g", 3, 1), Code.CANCELLED)
    worker.requests.fail_all(Failure(Code.BACKEND_DIED, "the engine died"))
    worker.run(4, gateway="late")
    snapshot = snapshot_of(worker, WorkerState.ENGINE_LOST)
    assert snapshot.attempts == []
    assert [each.number for each in snapshot.ended] == [2, 3], "1 and 4 were returned"


def test_the_snapshot_has_a_bounded_number_of_ends_and_reads_do_not_count_as_use(worker: Worker) -> None:
    ready_at = snapshot_of(worker).last_use
    assert ready_at is not None, "to become ready is a use"
    for number in range(1, MAX_ENDED + 3):
        worker.requests.run(Run("g", number, 1, "m", "tokenize", "req", stream=True, weight=0), b"{}")
        begin_answer(worker.pool.attempts[-1])
        end_answer(worker.pool.attempts[-1])
    snapshot = snapshot_of(worker)
    assert [each.number for each in snapshot.ended] == list(range(3, MAX_ENDED + 3))
    assert snapshot.last_use == ready_at


@pytest.mark.parametrize(
    ("running", "slots", "delay"),
    [
        (0, 1, 0.0),
        (0, 2, END_BATCH_DELAY_S),
        (1, 2, 0.0),
        (0, 4, END_BATCH_DELAY_S),
        (1, 4, END_BATCH_DELAY_S),
        (2, 4, 0.0),
        (3, 4, 0.0),
        (0, 0, 0.0),
    ],
)
def test_an_end_waits_only_while_half_of_the_slots_are_free(running: int, slots: int, delay: float) -> None:
    assert end_delay(running=running, slots=slots) == delay
