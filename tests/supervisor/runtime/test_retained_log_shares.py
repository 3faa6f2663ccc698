"""Each node has its share of the retained log."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from protocol.messages.log_stream import FollowLogs
from protocol.runtime.log_output import MAX_LINE_BYTES
from supervisor.runtime.retained_log import (
    MAX_RETAINED_BYTES,
    RetainedLog,
)
from tests.supervisor.runtime.retained_records import record, seqs
from tests.support.properties import examples


def seqs_by_node(book: RetainedLog) -> dict[str, list[int]]:
    """Return the numbers of the retained records of each node, as readers of that node get them."""
    nodes = ("head", "quiet", "loud")
    return {node: seqs(book.snapshot(FollowLogs(0, node=node)).entries) for node in nodes}


def test_a_node_that_writes_much_leaves_the_others_their_share() -> None:
    book = RetainedLog("boot", 9)
    for node in ("head", "quiet", *["loud"] * 100, "head"):
        book.append(record(node=node))
    assert seqs_by_node(book) == {"head": [1, 103], "quiet": [2], "loud": [97, 98, 99, 100, 101, 102]}
    for node in ("head", "quiet") * 5:
        book.append(record(node=node))
    assert {node: len(kept) for node, kept in seqs_by_node(book).items()} == {"head": 3, "quiet": 3, "loud": 3}
    assert seqs(book.snapshot(FollowLogs(0)).entries) == sorted(
        seq for kept in seqs_by_node(book).values() for seq in kept
    )


def test_a_node_that_writes_large_records_leaves_the_others_their_share() -> None:
    book = RetainedLog("boot")
    for number in range(1000):
        book.append(record(str(number), node="quiet"))
    line = record("x" * (MAX_LINE_BYTES - 200), node="loud")
    for _ in range(2 * MAX_RETAINED_BYTES // len(line)):
        book.append(line)
    kept = seqs_by_node(book)
    assert kept["quiet"] == list(range(1, 1001))
    sizes = sum(len(entry.fields) for entry in book.snapshot(FollowLogs(0)).entries)
    assert MAX_RETAINED_BYTES - len(line) < sizes <= MAX_RETAINED_BYTES


def test_more_nodes_than_records_that_are_kept_leave_the_latest() -> None:
    book = RetainedLog("boot", 3)
    for number in range(10):
        book.append(record(node=f"n{number}"))
    assert seqs(book.snapshot(FollowLogs(0)).entries) == [8, 9, 10]


def test_a_reader_learns_from_when_on_nothing_is_missing_and_how_much_is() -> None:
    book = RetainedLog("boot", 4)
    for seq, node in enumerate(("head", "loud", "loud", "loud", "loud", "loud"), 1):
        book.append(json.dumps({"ts": str(seq), "node": node}).encode())
    whole = book.snapshot(FollowLogs(0, after_seq=0))
    assert (seqs(whole.entries), whole.dropped, whole.retained_since) == ([1, 4, 5, 6], 2, "4")
    assert book.snapshot(FollowLogs(0, node="head")).retained_since == "1"
    assert book.snapshot(FollowLogs(0, node="unknown")).retained_since == ""


@examples(60)
@given(
    st.lists(st.tuples(st.sampled_from(["head", "a", "b", "c"]), st.integers(1, 30)), max_size=25), st.integers(1, 40)
)
def test_no_node_loses_a_record_while_another_one_has_more_than_its_share(
    bursts: list[tuple[str, int]], most: int
) -> None:
    book = RetainedLog("boot", most)
    written: dict[str, int] = {}
    for node, count in bursts:
        for _ in range(count):
            book.append(record(node=node))
        written[node] = written.get(node, 0) + count
    kept = {node: len(book.snapshot(FollowLogs(0, node=node)).entries) for node in written}
    assert sum(kept.values()) == min(most, sum(written.values()))
    share = most // max(1, len(written))
    assert all(kept[node] >= min(share, count) for node, count in written.items())
