"""Requests with long lists are cut into pieces that are requests themselves; their answers become one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.requests.list_pieces import (
    MAX_REPEATED_BYTES,
    MIN_BYTES,
    MIN_ENTRIES,
    TARGET_S,
    ListPieces,
    Piece,
    PieceEvents,
    joined_answer,
)
from protocol.failures import Code, LemonbusError


def cut(endpoint: str, body: dict[str, Any], weight: int, seconds: float = 10.0) -> list[Piece]:
    pieces = ListPieces(endpoint, msgspec.json.encode(body), weight)
    found = [pieces.first()]
    while pieces.left:
        found.append(pieces.following(seconds))
    return found


def sizes(endpoint: str, field: str, body: dict[str, Any], weight: int, seconds: float = 10.0) -> list[int]:
    found = cut(endpoint, body, weight, seconds)
    decoded = [msgspec.json.decode(piece.body) for piece in found]
    assert [each for piece in decoded for each in piece[field]] == body[field]
    assert all({**piece, field: 0} == {**body, field: 0} for piece in decoded)
    entries = [len(piece[field]) for piece in decoded]
    each_weight = weight // len(body[field])
    assert [piece.weight for piece in found] == [each_weight * count for count in entries]
    assert [piece.first for piece in found] == [each_weight * sum(entries[:number]) for number in range(len(entries))]
    return entries


def test_a_slow_engine_gets_small_pieces_and_a_fast_one_large_pieces() -> None:
    body = {"model": "a", "input": [f"text {number}" for number in range(100)]}
    assert sizes("embeddings", "input", body, 100) == [16, 16, 16, 16, 16, 16, 4]
    assert sizes("embeddings", "input", body, 100, seconds=TARGET_S / 2) == [16, 32, 52]
    body["input"] *= 20
    assert sizes("embeddings", "input", body, 2_000, seconds=0.0) == [16, 64, 256, 512, 512, 512, 128]


def test_long_entries_go_alone() -> None:
    text = "a" * MIN_BYTES
    assert sizes("rerank", "documents", {"query": "b", "documents": [text, text, "b", "c"]}, 4) == [1, 1, 2]


def test_several_completions_of_each_prompt_count() -> None:
    body = {"prompt": ["a", "b", [1, 2], "d"], "n": 8, "stream": True}
    assert sizes("completions", "prompt", body, 32) == [2, 2]
    assert sizes("completion", "prompt", {"prompt": ["a", {"prompt_string": "b"}]}, 200) == [1, 1]
    assert sizes("embedding", "content", {"input": None, "content": ["a"] * 17}, 17) == [16, 1]


def test_what_each_piece_repeats_has_a_limit_of_bytes() -> None:
    other = {"model": "a", "user": "b" * MAX_REPEATED_BYTES}
    for body in ({"input": ["c"] * 17}, {"input": ["c" * MIN_BYTES] * 2}):
        with pytest.raises(LemonbusError, match=f"the limit is {MAX_REPEATED_BYTES}") as refused:
            cut("embeddings", {**other, **body}, len(body["input"]))
        assert (refused.value.failure.code, refused.value.failure.param) == (Code.INVALID_REQUEST, "input")
    assert len(cut("embeddings", {**other, "input": ["c"] * 16}, 16)) == 1
    assert len(cut("embeddings", {"user": other["user"][:-40], "input": ["c"] * 17}, 17)) == 2


@pytest.mark.parametrize(
    ("endpoint", "body", "weight"),
    [
        ("completions", {"prompt": ["a"] * MIN_ENTRIES}, MIN_ENTRIES),
        ("completions", {"prompt": "a", "n": 64}, 64),
        ("completions", {"prompt": [1, 2, 3], "n": 64}, 64),
        ("completion", {"prompt": [1, "a", 3], "n": 64}, 64),
        ("chat/completions", {"messages": ["a"] * 40, "n": 64}, 64),
        ("embeddings", {"input": "a" * 100_000}, 1),
    ],
)
def test_other_requests_stay_as_they_are(endpoint: str, body: dict[str, Any], weight: int) -> None:
    assert cut(endpoint, body, weight) == [Piece(msgspec.json.encode(body), weight)]


def joined(endpoint: str, body: dict[str, Any], *answers: tuple[int, Any]) -> Any:
    given = [(first, msgspec.json.encode(answer)) for first, answer in answers]
    return msgspec.json.decode(joined_answer(endpoint, msgspec.json.encode(body), given))


def test_answers_become_one() -> None:
    found = joined(
        "embeddings",
        {},
        (0, {"model": "a", "data": [{"index": 0, "embedding": [0.1]}], "usage": {"prompt_tokens": 1}}),
        (1, {"model": "a", "data": [{"index": 0, "embedding": "x"}], "usage": {"prompt_tokens": 2}}),
    )
    assert found == {
        "model": "a",
        "data": [{"index": 0, "embedding": [0.1]}, {"index": 1, "embedding": "x"}],
        "usage": {"prompt_tokens": 3},
    }
    details = {"total_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}}
    usage = joined(
        "completions",
        {},
        (0, {"id": "a", "choices": [], "usage": details}),
        (4, {"id": "b", "choices": [{"index": 1, "text": "t"}], "usage": details}),
    )
    assert usage["usage"] == {"total_tokens": 4, "prompt_tokens_details": {"cached_tokens": 2}}
    assert (usage["id"], usage["choices"]) == ("a", [{"index": 5, "text": "t"}])
    assert joined("completion", {}, (0, [{"index": 0}, {"index": 1}]), (2, {"index": 0})) == [
        {"index": 0},
        {"index": 1},
        {"index": 2},
    ]


def test_the_best_documents_of_all_pieces() -> None:
    scores = [(0, [0.5, -1.0]), (2, [2.0, 1.0])]
    answers = [
        (first, {"results": [{"index": i, "relevance_score": score} for i, score in enumerate(each)]})
        for first, each in scores
    ]
    found = joined("rerank", {"top_n": 3}, *answers)
    assert [(each["index"], each["relevance_score"]) for each in found["results"]] == [(2, 2.0), (3, 1.0), (0, 0.5)]
    assert len(joined("rerank", {}, *answers)["results"]) == 4


@pytest.mark.parametrize("answer", [[], {}, {"data": [{}]}, {"data": [{"index": "a"}]}, {"data": 1}])
def test_an_answer_of_another_form_is_the_engines_error(answer: Any) -> None:
    with pytest.raises(LemonbusError) as caught:
        joined("embeddings", {}, (0, answer))
    assert caught.value.failure.code is Code.BACKEND_ERROR


def event(**fields: Any) -> bytes:
    return b"data: %b\n\n" % msgspec.json.encode(fields)


def test_events_become_those_of_one_stream() -> None:
    stream = PieceEvents("completions")
    assert stream.events(event(id="a", choices=[{"index": 0, "text": "x"}]), 0, last=False) == event(
        id="a", choices=[{"index": 0, "text": "x"}]
    )
    assert stream.events(event(id="a", choices=[], usage={"total_tokens": 2}), 0, last=False) == b""
    both = event(id="b", choices=[{"index": 1, "text": "y"}]) + event(id="b", choices=[], usage={"total_tokens": 3})
    assert stream.events(both, 16, last=True) == event(id="a", choices=[{"index": 17, "text": "y"}]) + event(
        id="a", choices=[], usage={"total_tokens": 5}
    )
    native = PieceEvents("completion")
    assert native.events(event(index=1, content="x"), 16, last=False) == event(index=17, content="x")
