"""Deficit round robin between keys: equal shares of tokens, first come first served within a key, and no starvation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from protocol.ids import RequestKey
from protocol.messages.caller import Caller
from protocol.messages.work import SubmitRequest
from supervisor.scheduler.queue.fair_share import QUANTUM, FairShare
from supervisor.scheduler.queue.request_queue import RequestQueue
from supervisor.scheduler.queue.work_items import QueuedRequest, key_of
from tests.support.calls import count_calls


def request(order: int, key: str = "", size: int = 400) -> QueuedRequest:
    caller = Caller(key) if key else None
    ask = SubmitRequest(order, 1, "m", "chat/completions", "label", size=size, caller=caller)
    return QueuedRequest(RequestKey("g1", order, 1), ask, b"", order, 0.0)


LAST = 1 << 62


def filled(requests: Iterable[QueuedRequest]) -> RequestQueue:
    queue = RequestQueue()
    for waiting in requests:
        queue.add(waiting)
    return queue


def served(share: FairShare, requests: list[QueuedRequest], used: dict[str, int] | None = None) -> list[QueuedRequest]:
    """Grant all of them; ``used``: what requests of a key really use, else what was expected."""
    order = []
    queue = filled(requests)
    while (waiting := share.next(queue.heads(LAST))) is not None:
        charged = share.take(queue.heads(LAST))
        queue.remove(waiting.key)
        order.append(waiting)
        if used is not None:
            share.settle(key_of(waiting), charged, used[key_of(waiting)])
    return order


def keys_of(order: list[QueuedRequest]) -> str:
    return "".join(key_of(waiting) for waiting in order)


@pytest.mark.parametrize("keys", ["", "a"])
def test_one_key_or_none_is_served_in_the_order_of_arrival(keys: str) -> None:
    queue = [request(order, keys, size=order * 1000) for order in (3, 5, 8, 9)]
    assert [waiting.order for waiting in served(FairShare(), queue)] == [3, 5, 8, 9]


def test_a_key_with_one_request_does_not_wait_for_all_of_another_key() -> None:
    queue = [*(request(order, "a", 4 * QUANTUM) for order in range(20)), request(20, "b", 4 * QUANTUM)]
    assert keys_of(served(FairShare(), queue)).index("b") <= 1


def test_keys_of_equal_requests_take_turns() -> None:
    queue = [
        *(request(order, "a", 4 * QUANTUM) for order in range(4)),
        *(request(9 + n, "b", 4 * QUANTUM) for n in range(4)),
    ]
    assert keys_of(served(FairShare(), queue)) == "abababab"


def test_a_key_whose_requests_report_nothing_does_not_keep_its_turn() -> None:
    """Engines report no tokens for pictures and for requests that fail."""
    queue = [*(request(order, "b") for order in range(200)), request(200, "a")]
    assert keys_of(served(FairShare(), queue, {"a": 0, "b": 0})).index("a") < 40


def test_a_large_body_does_not_count_as_a_prompt_of_a_million_tokens() -> None:
    queue = [*(request(order, "b", 800) for order in range(200)), request(200, "a", 4_000_000)]
    assert keys_of(served(FairShare(), queue)).index("a") < 100


SIZES = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 100_000)), max_size=40)


@example(
    [*[("a", 0)] * 12, ("c", 8961), ("c", 0)], [*zip("aaabccaa", (0, 0, 102, 128, 0, 1096, 1, 12412), strict=True)]
)
@given(SIZES, SIZES)
def test_the_announced_order_is_the_one_that_is_served(
    before: list[tuple[str, int]], requests: list[tuple[str, int]]
) -> None:
    share = FairShare()
    served(share, [request(order, key, size) for order, (key, size) in enumerate(before)], dict.fromkeys("abcd", 999))
    queue = [request(100 + order, key, size) for order, (key, size) in enumerate(requests)]
    announced = share.order(filled(queue).by_key)
    assert announced == served(share, queue)


def test_shares_are_of_tokens_not_of_requests() -> None:
    queue = [request(order, "a", 40 * QUANTUM) for order in range(10)]
    queue += [request(100 + order, "b", 4 * QUANTUM) for order in range(100)]
    first = Counter(keys_of(served(FairShare(), queue)[:55]))
    assert first == {"a": 5, "b": 50}


def test_what_was_really_used_counts() -> None:
    """Both look alike; the answers of the one are ten times as long."""
    queue = [request(order, "a", 400) for order in range(50)] + [request(100 + n, "b", 400) for n in range(500)]
    order = served(FairShare(), queue, {"a": 10 * QUANTUM, "b": QUANTUM})
    count = Counter(keys_of(order[:220]))
    assert count["b"] == pytest.approx(10 * count["a"], rel=0.15)


def test_a_key_does_not_pay_for_what_it_used_alone() -> None:
    share = FairShare()
    alone = [request(order, "a", 1_000_000) for order in range(50)]
    served(share, alone, {"a": 1_000_000})
    queue = [*(request(100 + order, "a", 4 * QUANTUM) for order in range(3)), request(200, "b", 4 * QUANTUM)]
    assert keys_of(served(share, queue))[:2] in ("ab", "ba")


def test_the_predicted_order_is_the_real_one_and_predicting_changes_nothing() -> None:
    share = FairShare()
    queue = [request(order, "abc"[order % 7 % 3], 700 * (order % 5 + 1)) for order in range(30)]
    predicted = share.order(filled(queue).by_key)
    assert share.order(filled(queue).by_key) == predicted
    assert served(share, list(queue)) == predicted


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 20_000)), min_size=1, max_size=60))
def test_every_request_is_served_once_and_each_key_in_its_order(items: list[tuple[str, int]]) -> None:
    queue = [request(order, key, size) for order, (key, size) in enumerate(items)]
    order = served(FairShare(), list(queue))
    assert sorted(waiting.order for waiting in order) == list(range(len(items)))
    for key in "abc":
        numbers = [waiting.order for waiting in order if key_of(waiting) == key]
        assert numbers == sorted(numbers)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 8000)), min_size=40, max_size=80))
def test_while_both_wait_no_key_is_far_ahead(items: list[tuple[str, int]]) -> None:
    share = FairShare()
    queue = filled(request(order, key, size) for order, (key, size) in enumerate(items))
    tokens = {"a": 0.0, "b": 0.0}
    while len(heads := queue.heads(LAST)) == 2:
        waiting = share.next(heads)
        assert waiting is not None
        share.take(heads)
        queue.remove(waiting.key)
        tokens[key_of(waiting)] += share.expected_tokens(waiting)
        assert abs(tokens["a"] - tokens["b"]) <= 2 * (QUANTUM + 2000)


def test_thousands_of_requests_of_a_hundred_keys_take_a_moment() -> None:
    """Finding all positions takes 170,000 calls of functions; finding each of them separately would take millions."""
    queue = filled(request(order, f"key{order % 100}", 400 + order % 7 * 100) for order in range(6400))
    share = FairShare()

    def find_all_positions() -> None:
        assert len(share.order(queue.by_key)) == 6400
        for _ in range(100):
            share.next(heads := queue.heads(LAST))
            share.take(heads)

    assert count_calls(find_all_positions) < 500_000


def test_a_queue_knows_what_waits_by_arrival_and_by_key() -> None:
    late, early, other = request(5, "a", 10), request(3, "a", 20), request(4, "b", 30)
    queue = filled([late, early, other])
    assert list(queue) == [early, other, late]
    assert (len(queue), queue.bytes, queue.first_order) == (3, 60, 3)
    assert queue.heads(LAST) == {"a": early, "b": other}
    assert queue.heads(4) == {"a": early}
    assert (queue.count_of("a"), queue.count_of("b"), queue.count_of("")) == (2, 1, 0)
    assert queue.remove(early.key)
    assert not queue.remove(early.key)
    assert list(queue.heads(LAST)) == ["b", "a"]
    assert queue.take_unannounced(-1.0) == set()
    assert queue.take_unannounced(0.0) == {late.key, other.key}, "not what waits no more"
    assert queue.take_unannounced(1.0) == set()


@given(st.lists(st.tuples(st.sampled_from(["", "ci", "team"]), st.integers(0, 4000)), max_size=12), st.integers(0, 14))
def test_the_first_ones_are_those_of_the_whole_order(items: list[tuple[str, int]], most: int) -> None:
    queue = filled(request(order, key, size) for order, (key, size) in enumerate(items))
    share = FairShare()
    assert share.order(queue.by_key, most) == share.order(queue.by_key)[:most]
