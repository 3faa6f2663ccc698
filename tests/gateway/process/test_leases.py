"""A real gateway process and slots that are lent to it: what goes straight to the worker, and what does not."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Iterator

import pytest

from gateway.leases import Leases
from protocol.events import Event, Kind
from protocol.failures import Code, Failure
from protocol.leases import Offer
from protocol.work import Run
from tests.gateway.process.talk import ANSWER, CHAT, PATH, error_of, opened
from tests.gateway.rawhttp import parsed, read_to_end, read_until
from tests.gateway.standin import StandIn, wait_for
from tests.gateway.standworker import CHUNK, Asked, Straight


def offer(number: int, slots: int, name: str = "tiny") -> Offer:
    return Offer(number, slots, name, "chat/completions", "registered")


def test_slots_are_counted() -> None:
    leases = Leases()
    assert leases.take("tiny", "chat/completions", 1) is None
    leases.lent("w1", offer(5, 2))
    leases.lent("w1", offer(5, 2, "alias"))
    one = leases.take("tiny", "chat/completions", 1)
    assert one is not None
    assert leases.take("alias", "chat/completions", 1) is one
    assert leases.take("tiny", "chat/completions", 1) is None
    one.busy -= 1
    assert leases.take("tiny", "completions", 1) is None
    assert leases.take("tiny", "chat/completions", 2) is None
    assert leases.take("tiny", "chat/completions", 1) is one


def test_a_lease_ends_with_its_word_or_its_worker() -> None:
    leases = Leases()
    leases.lent("w1", offer(5, 2))
    leases.over("w1", 4)
    leases.over("w2", 5)
    assert leases.take("tiny", "chat/completions", 1)
    leases.over("w1", 5)
    assert leases.take("tiny", "chat/completions", 1) is None
    leases.lent("w1", offer(6, 2))
    leases.gone("w2")
    assert leases.take("tiny", "chat/completions", 1)
    leases.gone("w1")
    assert leases.take("tiny", "chat/completions", 1) is None


class Lender:
    """A worker that lends to the gateway of a stand-in house."""

    def __init__(self, house: StandIn) -> None:
        self.house = house
        self.gateway = house.gateways[-1].id

    def lend(self, number: int, slots: int, first: tuple[int, int] = (0, 0)) -> None:
        """Lend; the gateway knows when it has read something later of the worker (``settled``)."""
        self.house.do(lambda: self.house.workers["w1"].lend(self.gateway, number, slots, first))

    def end(self, number: int) -> None:
        self.house.do(lambda: self.house.workers["w1"].end_lease(self.gateway, number))

    def next_run(self) -> Straight:
        run: Straight = self.house.do(self.house.workers["w1"].next_run)
        return run

    def answer(self, run: Straight) -> None:
        asked = run.asked
        self.house.do(lambda: self.house.publish(asked, [asked.event(0, Kind.DELTA, ANSWER, 3), asked.done(1)]))


@pytest.fixture
def lender(house: StandIn) -> Iterator[Lender]:
    """The gateway hears a worker before anything is lent: events come in order."""
    lender = Lender(house)
    lender.lend(5, 2)
    settled(house)
    yield lender
    lender.end(5)


@pytest.fixture
def lessor(house: StandIn) -> Iterator[Lender]:
    """One that lends nothing yet."""
    lessor = Lender(house)
    settled(house)
    yield lessor
    lessor.end(6)


def cancelled(house: StandIn) -> list[int]:
    """Return the numbers of the requests that the supervisor was told of that nobody wants them."""
    numbers = []
    with contextlib.suppress(queue.Empty):
        while True:
            numbers.append(house.cancelled.get_nowait().number)
    return numbers


def settled(house: StandIn) -> None:
    """A request for another model, answered by the worker: what that said before was read."""
    with opened(house, {**CHAT, "model": "other"}) as connection:
        asked = house.next_ask()
        house.do(lambda: house.publish(asked, [asked.event(0, Kind.DELTA, ANSWER, 3), asked.done(1)]))
        assert parsed(read_to_end(connection))[0] == 200


def unasked(house: StandIn) -> None:
    with pytest.raises(queue.Empty):
        house.asked.get_nowait()


def test_a_request_goes_straight(house: StandIn, lender: Lender) -> None:
    with opened(house, CHAT, X_Request_ID="label-1") as connection:
        run = lender.next_run()
        assert (run.message.lease, run.message.model, run.message.weight) == (5, "tiny", 1)
        assert (run.message.endpoint, run.message.label) == ("chat/completions", "label-1")
        lender.answer(run)
        status, _, body = parsed(read_to_end(connection))
    assert (status, body) == (200, ANSWER)
    unasked(house)


def test_more_than_was_lent_is_asked_for(house: StandIn, lender: Lender) -> None:
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(opened(house, CHAT)) for _ in range(3)]
        runs = [lender.next_run(), lender.next_run()]
        asked = house.next_ask()
        for run in [*runs, Straight(_as_run(asked), asked.body)]:
            lender.answer(run)
        assert [parsed(read_to_end(each))[0] for each in connections] == [200] * 3
    with opened(house, CHAT) as connection:
        lender.answer(lender.next_run())
        assert parsed(read_to_end(connection))[0] == 200


def test_what_was_asked_for_uses_what_is_lent(house: StandIn, lessor: Lender) -> None:
    with opened(house, {**CHAT, "n": 2}):
        asked = house.next_ask()
        assert asked.ask.weight == 2
        lessor.lend(6, 3, (asked.ask.number, 1))
        settled(house)
        with opened(house, CHAT) as one, opened(house, CHAT) as another:
            lessor.answer(lessor.next_run())
            second = house.next_ask()
            lessor.answer(Straight(_as_run(second), second.body))
            assert [parsed(read_to_end(each))[0] for each in (one, another)] == [200, 200]
    cancel = lessor.next_run().message
    assert (cancel.number, cancel.attempt, cancel.reason) == (asked.ask.number, 1, Code.CANCELLED)
    assert asked.ask.number not in cancelled(house)
    with opened(house, CHAT) as connection:
        lessor.answer(lessor.next_run())
        assert parsed(read_to_end(connection))[0] == 200


def test_what_was_tried_again_uses_nothing_that_was_lent_to_its_first_attempt(house: StandIn, lessor: Lender) -> None:
    with opened(house, CHAT) as connection:
        first = house.next_ask()
        returned = Failure(Code.RETURNED, "the worker never saw the gateway")
        house.do(lambda: house.publish(first, [first.failed(0, returned)]))
        again = house.next_ask()
        lessor.lend(6, 1, (first.ask.number, 1))
        settled(house)
        with opened(house, CHAT) as another:
            lessor.answer(lessor.next_run())
            assert parsed(read_to_end(another))[0] == 200
        house.do(lambda: house.publish(again, [again.event(0, Kind.DELTA, ANSWER, 3), again.done(1)]))
        assert parsed(read_to_end(connection))[0] == 200


def _as_run(asked: Asked) -> object:
    return Run(asked.gateway, asked.ask.number, asked.ask.attempt, "tiny", "chat/completions", "l")


def test_what_the_worker_does_not_take_is_asked_for(house: StandIn, lender: Lender) -> None:
    with opened(house, CHAT) as connection:
        first = lender.next_run().asked
        failure = Failure(Code.RETURNED, "the lease is over")
        house.do(lambda: house.publish(first, [first.failed(0, failure)]))
        asked = house.next_ask()
        assert (asked.ask.number, asked.ask.attempt, asked.ask.suspect) == (first.ask.number, 2, False)
        assert asked.ask.new
        assert asked.body == first.body
        house.do(lambda: house.publish(asked, [asked.event(0, Kind.DELTA, ANSWER, 3), asked.done(1)]))
        assert parsed(read_to_end(connection))[0] == 200


def test_a_lease_that_is_over_is_not_used(house: StandIn, lender: Lender) -> None:
    lender.end(5)
    settled(house)
    with opened(house, CHAT) as connection:
        asked = house.next_ask()
        house.do(lambda: house.publish(asked, [asked.event(0, Kind.DELTA, ANSWER, 3), asked.done(1)]))
        assert parsed(read_to_end(connection))[0] == 200


def test_a_hang_up_goes_straight_too(house: StandIn, lender: Lender) -> None:
    with opened(house) as connection:
        run = lender.next_run()
        asked = run.asked
        house.do(lambda: house.publish(asked, asked.tokens(0, 1)))
        read_until(connection, CHUNK % 0)
    cancel = lender.next_run().message
    assert (cancel.number, cancel.attempt, cancel.reason) == (asked.ask.number, 1, Code.CANCELLED)
    assert asked.ask.number not in cancelled(house)


def test_a_large_body_is_a_file_there_too(house: StandIn, lender: Lender) -> None:
    body = {**CHAT, "messages": [{"role": "user", "content": "x" * 5000}]}
    with opened(house, body) as connection:
        run = lender.next_run()
        assert run.body == b""
        assert (house.runtime / "spool" / run.message.spool).stat().st_size > 5000
        lender.answer(run)
        assert parsed(read_to_end(connection))[0] == 200
    wait_for(lambda: not (house.runtime / "spool" / run.message.spool).exists())


def test_a_worker_that_dies_is_known_although_nobody_granted(house: StandIn, lender: Lender) -> None:
    with opened(house, CHAT) as connection:
        run = lender.next_run()
        house.add_worker("w9")
        house.kill_worker("w1", Failure(Code.WORKER_GONE, "killed"))
        again = house.next_ask()
        assert (again.ask.number, again.ask.attempt, again.ask.suspect) == (run.message.number, 2, True)
        house.do(lambda: house.publish(again, [again.event(0, Kind.DELTA, ANSWER, 3), again.done(1)], "w9"))
        assert parsed(read_to_end(connection))[0] == 200
    house.kill_worker("w9", Failure(Code.UNLOADED, "unloaded"))
    house.add_worker("w1")


def test_an_engine_that_dies_is_told_as_ever(house: StandIn, lender: Lender) -> None:
    with opened(house, CHAT) as connection:
        first = lender.next_run().asked
        died = Failure(Code.BACKEND_DIED, "the backend was killed by SIGKILL")
        house.do(lambda: house.publish(first, [first.failed(0, died)]))
        second = house.next_ask()
        assert second.ask.suspect
        house.do(lambda: house.publish(second, [second.failed(0, died)]))
        error = error_of(parsed(read_to_end(connection)))
    assert (error["code"], error["model"]) == ("backend_died", "registered")


def test_nonsense_about_leases_is_no_harm(house: StandIn, lender: Lender) -> None:
    house.do(lambda: house.workers["w1"].publish(lender.gateway, [Event(0, 0, 0, Kind.LENT, 0, b"x")]))
    house.do(lambda: house.workers["w1"].publish(lender.gateway, [Event(0, 0, 0, 99, 7, b"x")]))
    assert house.post(PATH, b"{")[0] == 400
    with opened(house, CHAT) as connection:
        lender.answer(lender.next_run())
        assert parsed(read_to_end(connection))[0] == 200
