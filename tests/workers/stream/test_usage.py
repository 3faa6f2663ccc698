"""Token counts of streams: one chunk after the last completion, for all of them together, and only if the client asked for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.workers.direct_engine import DirectEngine, running_engine
from workers.backends.llamacpp.backend import LlamaCppBackend
from workers.backends.requests.generation_request import SHORT_BODY_BYTES
from workers.backends.requests.openai_forms import whole_answer
from workers.stream.chunk_translator import ChunkTranslator
from workers.stream.sse_filter import SseFilter
from workers.stream.usage import estimated_answer_tokens, with_usage_of_all

TEXT: dict[str, Any] = {"prompt": "hi", "max_tokens": 3, "temperature": 0}
SAY: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "temperature": 0}
CASES = [
    ("completions", TEXT, 1, 1),
    ("completions", {**TEXT, "n": 2}, 1, 2),
    ("completions", {**TEXT, "prompt": ["hi", "yo"], "n": 2}, 2, 2),
    ("chat/completions", SAY, 1, 1),
    ("chat/completions", {**SAY, "n": 3}, 1, 3),
]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DirectEngine, LlamaCppBackend]]:
    with running_engine("tiny-chat", str(tmp_path_factory.mktemp("cache"))) as running:
        yield running


def chunks_of(engine: tuple[DirectEngine, LlamaCppBackend], endpoint: str, body: dict[str, Any]) -> list[Any]:
    direct, backend = engine
    long = {**body, "stream": True, "metadata": "x" * SHORT_BODY_BYTES}
    request = backend.request(endpoint, "", json.dumps(long).encode(), stream=True)
    status, answer = direct.post(request.path, request.body)
    assert status == 200, answer
    stream = SseFilter(request.usage, request.progress, prompts=request.prompts, choices=request.choices)
    data = b"".join(stream.feed(answer[start : start + 99]).data for start in range(0, len(answer), 99))
    assert stream.finished
    return [json.loads(event.removeprefix(b"data: ")) for event in data.split(b"\n\n") if event]


@pytest.mark.parametrize(("endpoint", "body", "prompts", "choices"), CASES, ids=str)
def test_the_usage_chunk_is_the_last_one_and_counts_all(
    engine: tuple[DirectEngine, LlamaCppBackend], endpoint: str, body: dict[str, Any], prompts: int, choices: int
) -> None:
    *chunks, last = chunks_of(engine, endpoint, {**body, "stream_options": {"include_usage": True}})
    assert last["choices"] == []
    assert (last["id"], last["object"]) == (chunks[0]["id"], chunks[0]["object"])
    one = 22 if endpoint == "chat/completions" else 3
    usage = last["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (one * prompts, 3 * prompts * choices)
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert not any(chunk.get("usage") or not chunk["choices"] for chunk in chunks)


@pytest.mark.parametrize(("endpoint", "body", "prompts", "choices"), CASES, ids=str)
def test_without_being_asked_no_chunk_has_usage(
    engine: tuple[DirectEngine, LlamaCppBackend], endpoint: str, body: dict[str, Any], prompts: int, choices: int
) -> None:
    chunks = chunks_of(engine, endpoint, body)
    assert not any("usage" in chunk for chunk in chunks)
    ends = [chunk for chunk in chunks if chunk["choices"][0]["finish_reason"]]
    assert len(ends) == prompts * choices
    assert all("timings" in chunk for chunk in ends)


def test_a_whole_answer_of_the_engine_counts_by_its_log_probabilities() -> None:
    choices = [{"logprobs": {"content": [1, 2, 3]}}, {"logprobs": {"content": [1]}}]
    usage = {"completion_tokens": 3, "prompt_tokens": 5, "total_tokens": 8}
    whole = json.loads(with_usage_of_all(json.dumps({"choices": choices, "usage": usage}).encode()))
    assert whole["usage"] == {"completion_tokens": 4, "prompt_tokens": 5, "total_tokens": 9}
    other = json.dumps({"choices": [{"logprobs": None}], "usage": usage}).encode()
    assert with_usage_of_all(other) == other


@pytest.mark.parametrize(
    ("usage", "passed_on"),
    [
        ({"prompt_tokens": 7, "completion_tokens": 2}, True),
        ({"prompt_tokens": -7, "completion_tokens": 2}, False),
        ({"prompt_tokens": 7, "completion_tokens": 2**62}, False),
        ({"prompt_tokens": 7, "completion_tokens": 10**30}, False),
        ({"prompt_tokens": 1.5}, False),
        ({"prompt_tokens": 7, "prompt_tokens_details": {"cached_tokens": -1}}, False),
    ],
    ids=json.dumps,
)
def test_counts_of_a_server_that_cannot_be_true_are_left_out(usage: dict[str, Any], passed_on: bool) -> None:
    choice = {"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}
    chunk = json.dumps({"choices": [choice], "usage": usage}).encode()
    stream = ChunkTranslator(chat=True, model="m").feed(b"data: %b\n\ndata: [DONE]\n\n" % chunk)
    assert (b'"usage"' in stream) == passed_on
    assert ("usage" in json.loads(whole_answer(chunk, "m"))) == passed_on


@pytest.mark.parametrize(
    ("answer", "tokens"),
    [
        ({"choices": [{"message": {"role": "assistant", "content": "123456", "tool_calls": None}}]}, 2),
        ({"choices": [{"message": {"content": None, "reasoning_content": "1234", "tool_calls": [{"id": 1}]}}]}, 4),
        ({"choices": [{"index": 0, "text": "12"}, {"index": 1, "text": "34"}]}, 2),
        ({"data": [{"embedding": [1, 2, 3]}]}, 0),
        (["no object"], 0),
    ],
)
def test_an_answer_without_counts_is_estimated_by_its_texts(answer: Any, tokens: int) -> None:
    assert estimated_answer_tokens(json.dumps(answer, separators=(",", ":")).encode()) == tokens
