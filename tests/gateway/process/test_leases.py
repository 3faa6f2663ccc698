"""A real gateway process and slots that are leased to it: what goes straight to the worker, and what does not."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Iterator

import pytest

from gateway.requests.leases import GatewayLeases
from protocol.failures import Code, Failure
from protocol.messages.events import Event, EventKind
from protocol.messages.leases import LeaseTerms
from protocol.messages.work import Run
from tests.gateway.fake_worker import CHUNK, DirectMessage, ReceivedRequest
from tests.gateway.gateway_harness import GatewayHarness, wait_for
from tests.gateway.process.chat_requests import ANSWER, CHAT, PATH, error_of, open_request
from tests.gateway.raw_http import parsed, read_to_end, read_until


def offer(number: int, slots: int, name: str = "tiny") -> LeaseTerms:
    return LeaseTerms(number, slots, name, "chat/completions", "registered")


def test_slots_are_counted() -> None:
    leases = GatewayLeases()
    assert leases.take("tiny", "chat/completions", 1) is None
    leases.add("w1", offer(5, 2))
    leases.add("w1", offer(5, 2, "alias"))
    one = leases.take("tiny", "chat/completions", 1)
    assert one is not None
    assert leases.take("alias", "chat/completions", 1) is one
    assert leases.take("tiny", "chat/completions", 1) is None
    one.busy -= 1
    assert leases.take("tiny", "completions", 1) is None
    assert leases.take("tiny", "chat/completions", 2) is None
    assert leases.take("tiny", "chat/completions", 1) is one


def test_a_lease_ends_with_its_message_or_its_worker() -> None:
    leases = GatewayLeases()
    leases.add("w1", offer(5, 2))
    leases.end("w1", 4)
    leases.end("w2", 5)
    assert leases.take("tiny", "chat/completions", 1)
    leases.end("w1", 5)
    assert leases.take("tiny", "chat/completions", 1) is None
    leases.add("w1", offer(6, 2))
    leases.remove_worker("w2")
    assert leases.take("tiny", "chat/completions", 1)
    leases.remove_worker("w1")
    assert leases.take("tiny", "chat/completions", 1) is None


class LeasingWorker:
    """A fake worker that issues leases to the gateway."""

    def __init__(self, harness: GatewayHarness) -> None:
        self.harness = harness
        self.gateway = harness.gateways[-1].id

    def issue_lease(self, number: int, slots: int, first: tuple[int, int] = (0, 0)) -> None:
        """Issue a lease; the gateway knows when it has read something later of the worker (``settled``)."""
        self.harness.do(lambda: self.harness.workers["w1"].issue_lease(self.gateway, number, slots, first))

    def end(self, number: int) -> None:
        self.harness.do(lambda: self.harness.workers["w1"].end_lease(self.gateway, number))

    def next_run(self) -> DirectMessage:
        run: DirectMessage = self.harness.do(self.harness.workers["w1"].next_run)
        return run

    def answer(self, run: DirectMessage) -> None:
        received = run.received
        self.harness.do(
            lambda: self.harness.publish(received, [received.event(0, EventKind.DELTA, ANSWER, 3), received.done(1)])
        )


@pytest.fixture
def leasing_worker(harness: GatewayHarness) -> Iterator[LeasingWorker]:
    """One lease, and the gateway has read it: events arrive in order."""
    leasing_worker = LeasingWorker(harness)
    leasing_worker.issue_lease(5, 2)
    settled(harness)
    yield leasing_worker
    leasing_worker.end(5)
    settled(harness)  # or the next test's first request might still use the lease


@pytest.fixture
def unleased_worker(harness: GatewayHarness) -> Iterator[LeasingWorker]:
    """A worker that has issued no lease."""
    unleased_worker = LeasingWorker(harness)
    settled(harness)
    yield unleased_worker
    unleased_worker.end(6)
    settled(harness)


def cancelled(harness: GatewayHarness) -> list[int]:
    """Return the numbers of the requests that were cancelled at the supervisor."""
    numbers = []
    with contextlib.suppress(queue.Empty):
        while True:
            numbers.append(harness.cancelled.get_nowait().number)
    return numbers


def settled(harness: GatewayHarness) -> None:
    """Wait until the gateway has read the worker's events: a request for another model is answered."""
    with open_request(harness, {**CHAT, "model": "other"}) as connection:
        received = harness.next_request()
        harness.do(lambda: harness.publish(received, [received.event(0, EventKind.DELTA, ANSWER, 3), received.done(1)]))
        assert parsed(read_to_end(connection))[0] == 200


def assert_no_submission(harness: GatewayHarness) -> None:
    with pytest.raises(queue.Empty):
        harness.received.get_nowait()


def test_a_leased_request_is_sent_directly_to_the_worker(
    harness: GatewayHarness, leasing_worker: LeasingWorker
) -> None:
    with open_request(harness, CHAT, X_Request_ID="label-1") as connection:
        run = leasing_worker.next_run()
        assert (run.message.lease, run.message.model, run.message.weight) == (5, "tiny", 1)
        assert (run.message.endpoint, run.message.label) == ("chat/completions", "label-1")
        leasing_worker.answer(run)
        status, _, body = parsed(read_to_end(connection))
    assert (status, body) == (200, ANSWER)
    assert_no_submission(harness)


def test_requests_beyond_the_lease_are_submitted_to_the_supervisor(
    harness: GatewayHarness, leasing_worker: LeasingWorker
) -> None:
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(open_request(harness, CHAT)) for _ in range(3)]
        runs = [leasing_worker.next_run(), leasing_worker.next_run()]
        received = harness.next_request()
        for run in [*runs, DirectMessage(_as_run(received), received.body)]:
            leasing_worker.answer(run)
        assert [parsed(read_to_end(each))[0] for each in connections] == [200] * 3
    with open_request(harness, CHAT) as connection:
        leasing_worker.answer(leasing_worker.next_run())
        assert parsed(read_to_end(connection))[0] == 200


def test_a_submitted_request_uses_the_lease_that_arrives_with_it(
    harness: GatewayHarness, unleased_worker: LeasingWorker
) -> None:
    with open_request(harness, {**CHAT, "n": 2}):
        received = harness.next_request()
        assert received.message.weight == 2
        unleased_worker.issue_lease(6, 3, (received.message.number, 1))
        settled(harness)
        with open_request(harness, CHAT) as one, open_request(harness, CHAT) as another:
            unleased_worker.answer(unleased_worker.next_run())
            second = harness.next_request()
            unleased_worker.answer(DirectMessage(_as_run(second), second.body))
            assert [parsed(read_to_end(each))[0] for each in (one, another)] == [200, 200]
    cancel = unleased_worker.next_run().message
    assert (cancel.number, cancel.attempt, cancel.reason) == (received.message.number, 1, Code.CANCELLED)
    assert received.message.number not in cancelled(harness)
    with open_request(harness, CHAT) as connection:
        unleased_worker.answer(unleased_worker.next_run())
        assert parsed(read_to_end(connection))[0] == 200


def test_a_second_attempt_does_not_use_the_lease_of_the_first(
    harness: GatewayHarness, unleased_worker: LeasingWorker
) -> None:
    with open_request(harness, CHAT) as connection:
        first = harness.next_request()
        returned = Failure(Code.RETURNED, "the worker never saw the gateway")
        harness.do(lambda: harness.publish(first, [first.failed(0, returned)]))
        again = harness.next_request()
        unleased_worker.issue_lease(6, 1, (first.message.number, 1))
        settled(harness)
        with open_request(harness, CHAT) as another:
            unleased_worker.answer(unleased_worker.next_run())
            assert parsed(read_to_end(another))[0] == 200
        harness.do(lambda: harness.publish(again, [again.event(0, EventKind.DELTA, ANSWER, 3), again.done(1)]))
        assert parsed(read_to_end(connection))[0] == 200


def _as_run(received: ReceivedRequest) -> object:
    return Run(received.gateway, received.message.number, received.message.attempt, "tiny", "chat/completions", "l")


def test_a_request_that_the_worker_returns_is_submitted_to_the_supervisor(
    harness: GatewayHarness, leasing_worker: LeasingWorker
) -> None:
    with open_request(harness, CHAT) as connection:
        first = leasing_worker.next_run().received
        failure = Failure(Code.RETURNED, "the lease is over")
        harness.do(lambda: harness.publish(first, [first.failed(0, failure)]))
        received = harness.next_request()
        assert (received.message.number, received.message.attempt, received.message.suspect) == (
            first.message.number,
            2,
            False,
        )
        assert received.message.new
        assert received.body == first.body
        harness.do(lambda: harness.publish(received, [received.event(0, EventKind.DELTA, ANSWER, 3), received.done(1)]))
        assert parsed(read_to_end(connection))[0] == 200


def test_a_lease_that_is_over_is_not_used(harness: GatewayHarness, leasing_worker: LeasingWorker) -> None:
    leasing_worker.end(5)
    settled(harness)
    with open_request(harness, CHAT) as connection:
        received = harness.next_request()
        harness.do(lambda: harness.publish(received, [received.event(0, EventKind.DELTA, ANSWER, 3), received.done(1)]))
        assert parsed(read_to_end(connection))[0] == 200


def test_a_cancel_is_sent_directly_to_the_worker(harness: GatewayHarness, leasing_worker: LeasingWorker) -> None:
    with open_request(harness) as connection:
        run = leasing_worker.next_run()
        received = run.received
        harness.do(lambda: harness.publish(received, received.tokens(0, 1)))
        read_until(connection, CHUNK % 0)
    cancel = leasing_worker.next_run().message
    assert (cancel.number, cancel.attempt, cancel.reason) == (received.message.number, 1, Code.CANCELLED)
    assert received.message.number not in cancelled(harness)


def test_a_large_body_is_a_file_there_too(harness: GatewayHarness, leasing_worker: LeasingWorker) -> None:
    body = {**CHAT, "messages": [{"role": "user", "content": "x" * 5000}]}
    with open_request(harness, body) as connection:
        run = leasing_worker.next_run()
        assert run.body == b""
        assert (harness.runtime / "spool" / run.message.spool).stat().st_size > 5000
        leasing_worker.answer(run)
        assert parsed(read_to_end(connection))[0] == 200
    wait_for(lambda: not (harness.runtime / "spool" / run.message.spool).exists())


def test_a_worker_death_under_a_lease_is_noticed(harness: GatewayHarness, leasing_worker: LeasingWorker) -> None:
    with open_request(harness, CHAT) as connection:
        run = leasing_worker.next_run()
        harness.add_worker("w9")
        harness.kill_worker("w1", Failure(Code.WORKER_GONE, "killed"))
        again = harness.next_request()
        assert (again.message.number, again.message.attempt, again.message.suspect) == (run.message.number, 2, True)
        harness.do(lambda: harness.publish(again, [again.event(0, EventKind.DELTA, ANSWER, 3), again.done(1)], "w9"))
        assert parsed(read_to_end(connection))[0] == 200
    harness.kill_worker("w9", Failure(Code.UNLOADED, "unloaded"))
    harness.add_worker("w1")


def test_an_engine_death_under_a_lease_is_an_error(harness: GatewayHarness, leasing_worker: LeasingWorker) -> None:
    with open_request(harness, CHAT) as connection:
        first = leasing_worker.next_run().received
        died = Failure(Code.BACKEND_DIED, "the backend was killed by SIGKILL")
        harness.do(lambda: harness.publish(first, [first.failed(0, died)]))
        second = harness.next_request()
        assert second.message.suspect
        harness.do(lambda: harness.publish(second, [second.failed(0, died)]))
        error = error_of(parsed(read_to_end(connection)))
    assert (error["code"], error["model"]) == ("backend_died", "registered")


def test_malformed_lease_events_do_no_harm(harness: GatewayHarness, leasing_worker: LeasingWorker) -> None:
    harness.do(
        lambda: harness.workers["w1"].publish(leasing_worker.gateway, [Event(0, 0, 0, EventKind.LEASE_ISSUED, 0, b"x")])
    )
    harness.do(lambda: harness.workers["w1"].publish(leasing_worker.gateway, [Event(0, 0, 0, 99, 7, b"x")]))
    assert harness.post(PATH, b"{")[0] == 400
    with open_request(harness, CHAT) as connection:
        leasing_worker.answer(leasing_worker.next_run())
        assert parsed(read_to_end(connection))[0] == 200
