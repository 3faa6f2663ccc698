"""The inbox keeps order, notices gaps, stays bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.requests.inbox import Inbox
from protocol.failures import Code, Failure
from protocol.messages.events import Event, EventKind, Outcome
from protocol.wire.envelope import pack_payload

LIMIT = 1000


def delta(seq: int, data: bytes = b"x", attempt: int = 1) -> Event:
    return Event(7, attempt, seq, EventKind.DELTA, 1, data)


def done(seq: int) -> Event:
    return Event(7, 1, seq, EventKind.DONE, 0, pack_payload(Outcome(output_tokens=3)))


def test_pieces_are_joined_in_order_and_counted() -> None:
    inbox = Inbox(1, LIMIT)
    for seq, data in enumerate((b"a", b"b", b"c")):
        assert inbox.put(delta(seq, data)) is None
    assert not inbox.taken
    assert inbox.take() == b"abc"
    assert inbox.tokens == 3
    assert inbox.taken
    assert inbox.take() == b""


def test_the_engine_is_to_wait_while_too_much_waits() -> None:
    inbox = Inbox(1, LIMIT, hold_over=10)
    for seq, (data, crowded) in enumerate([(b"x" * 10, False), (b"x", True)]):
        inbox.put(delta(seq, data))
        assert inbox.crowded is crowded
    inbox.take()
    assert not inbox.crowded
    inbox.put(delta(2, b"x" * 11))
    inbox.put(done(3))
    assert not inbox.crowded, "nothing follows"


def test_without_a_lower_limit_the_engine_never_waits() -> None:
    inbox = Inbox(1, LIMIT)
    inbox.put(delta(0, b"x" * LIMIT))
    assert not inbox.crowded


def test_the_end_keeps_waiting_pieces() -> None:
    inbox = Inbox(1, LIMIT)
    inbox.put(delta(0))
    inbox.put(done(1))
    assert inbox.outcome == Outcome(output_tokens=3)
    assert not inbox.empty
    assert inbox.take() == b"x"
    assert inbox.empty


def test_a_gap_is_loss() -> None:
    inbox = Inbox(1, LIMIT)
    inbox.put(delta(0))
    failure = inbox.put(delta(2))
    assert failure is not None
    assert failure.code == Code.LOST


def test_a_first_event_that_is_not_number_zero_is_loss() -> None:
    failure = Inbox(1, LIMIT).put(delta(1))
    assert failure is not None
    assert failure.code == Code.LOST


def test_events_of_other_attempts_and_repeated_ones_are_dropped() -> None:
    inbox = Inbox(2, LIMIT)
    assert inbox.put(delta(5, attempt=1)) is None
    assert inbox.put(delta(0, b"a", attempt=2)) is None
    assert inbox.put(delta(0, b"a", attempt=2)) is None
    assert inbox.take() == b"a"


def test_a_failure_is_handed_back() -> None:
    reported = Failure(Code.BACKEND_DIED, "killed by SIGKILL")
    assert Inbox(1, LIMIT).put(Event(7, 1, 0, EventKind.FAILED, 0, pack_payload(reported))) == reported


def test_an_unreadable_end_is_loss() -> None:
    failure = Inbox(1, LIMIT).put(Event(7, 1, 0, EventKind.DONE, 0, b"\xc1"))
    assert failure is not None
    assert failure.code == Code.LOST


def test_progress_without_output_is_nothing_to_write() -> None:
    inbox = Inbox(1, LIMIT)
    assert inbox.put(Event(7, 1, 0, EventKind.ALIVE)) is None
    assert inbox.empty
    assert inbox.put(delta(1)) is None


def test_a_client_that_does_not_read_is_cut_off_at_the_limit() -> None:
    inbox = Inbox(1, LIMIT)
    assert inbox.put(delta(0, b"x" * LIMIT)) is None
    failure = inbox.put(delta(1))
    assert failure is not None
    assert failure.code == Code.CLIENT_TOO_SLOW


@pytest.mark.parametrize("sizes", [[LIMIT, 5 * LIMIT], [5 * LIMIT, LIMIT], [1, 5 * LIMIT, 1]])
@pytest.mark.parametrize("last", [LIMIT, 5 * LIMIT])
def test_one_event_may_be_larger_than_the_limit_beside_as_many_bytes_as_it_allows(sizes: list[int], last: int) -> None:
    inbox = Inbox(1, LIMIT)
    for begin in (0, len(sizes)):
        for seq, size in enumerate(sizes, begin):
            assert inbox.put(delta(seq, b"x" * size)) is None
        if not begin:
            assert len(inbox.take()) == sum(sizes)
    failure = inbox.put(delta(2 * len(sizes), b"x" * last))
    assert failure is not None
    assert failure.code == Code.CLIENT_TOO_SLOW


@given(st.lists(st.binary(max_size=30), max_size=40), st.sets(st.integers(0, 40)))
def test_whatever_the_rhythm_of_reading_the_bytes_are_the_same(pieces: list[bytes], reads: set[int]) -> None:
    inbox = Inbox(1, 10_000)
    read = b""
    for seq, piece in enumerate(pieces):
        assert inbox.put(delta(seq, piece)) is None
        if seq in reads:
            read += inbox.take()
    assert read + inbox.take() == b"".join(pieces)


@given(st.lists(st.integers(0, 12), max_size=30))
def test_a_gap_is_found_in_any_order_of_numbers(seqs: list[int]) -> None:
    inbox = Inbox(1, 10_000)
    for seq in seqs:
        if inbox.put(delta(seq, b"%d," % seq)) is not None:
            break
    numbers = [int(number) for number in inbox.take().split(b",") if number]
    assert numbers == list(range(len(numbers)))
