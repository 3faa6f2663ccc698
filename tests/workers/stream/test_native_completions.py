"""llama.cpp's own completions through the worker equal llama-server's own, field by field: streams, and answers made from them."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from tests.workers.direct_engine import DirectEngine, running_engine
from workers.backends.engine_request import EngineRequest
from workers.backends.llamacpp.backend import LlamaCppBackend
from workers.backends.requests.generation_request import SHORT_BODY_BYTES, UNSTREAMED_MAX_TOKENS
from workers.stream.native_completion import NativeCompletionAssembler, NativeCompletionFilter, native_summaries

SAY: dict[str, Any] = {"prompt": "hi", "n_predict": 12, "temperature": 0, "seed": 1}
FILL: dict[str, Any] = {"input_prefix": "def f(", "input_suffix": "return 1", "n_predict": 6, "temperature": 0}
STOP = {**SAY, "stop": ["time", "short story"]}

CASES: list[tuple[str, dict[str, Any]]] = [
    ("completion", SAY),
    ("completion", {**SAY, "n_predict": -1}),
    ("completion", {**SAY, "n_predict": 1}),
    ("completion", {**SAY, "n_probs": 2}),
    ("completion", {**SAY, "n_probs": 2, "post_sampling_probs": True}),
    ("completion", {**SAY, "return_tokens": True}),
    ("completion", STOP),
    ("completion", {**STOP, "return_tokens": True}),
    ("completion", {**SAY, "timings_per_token": True}),
    ("completion", {**SAY, "n_cmpl": 2}),
    ("completion", {**SAY, "n": 2}),
    ("completion", {**SAY, "prompt": ["hi"]}),
    ("completion", {**SAY, "prompt": ["hi", "yo"], "n_probs": 1}),
    ("completion", {**SAY, "prompt": ["hi", [109, 106]], "n_cmpl": 2}),
    ("completion", {**SAY, "prompt": [1, 109, 106]}),
    ("completion", {**SAY, "prompt": [1, "hello", 106, "you"]}),
    ("completion", {**SAY, "prompt": {"prompt_string": "hi"}}),
    ("completion", {**SAY, "prompt": ""}),
    ("completion", {**SAY, "grammar": 'root ::= "yes" | "no"'}),
    ("completion", {**SAY, "json_schema": {"type": "integer"}, "n_predict": 5}),
    ("infill", FILL),
    ("infill", {**FILL, "prompt": "x", "input_extra": [{"filename": "a.py", "text": "y = 1"}], "n_probs": 1}),
    ("infill", {**FILL, "n_cmpl": 2}),
]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DirectEngine, LlamaCppBackend]]:
    with running_engine("tiny-infill", str(tmp_path_factory.mktemp("cache"))) as running:
        yield running


def comparable(answer: Any) -> Any:
    """Leave out what differs between two runs: times, and the slot that was free."""
    if isinstance(answer, list):
        return [comparable(each) for each in answer]
    kept = {**answer, "id_slot": isinstance(answer.get("id_slot"), int)}
    if "timings" in answer:
        kept["timings"] = sorted(answer["timings"])
    return kept


def filter_of(request: EngineRequest) -> NativeCompletionFilter:
    return NativeCompletionFilter(request.progress, "tiny-infill", "tiny-infill", request.weight)


def events_of(data: bytes) -> list[Any]:
    return [
        json.loads(event.removeprefix(b"data: ")) for event in data.split(b"\n\n") if event and event != b"data: null"
    ]


def warm(direct: DirectEngine, endpoint: str, body: dict[str, Any]) -> Any:
    """Return the engine's own answer; both of the next requests find the same prompt cache."""
    for _ in range(2):
        status, answer = direct.post(f"/{endpoint}", json.dumps({**body, "cache_prompt": False}).encode())
        assert status == 200, answer
    return answer


@pytest.mark.parametrize(("endpoint", "body"), CASES, ids=str)
def test_an_assembled_answer_equals_the_engines_own(
    engine: tuple[DirectEngine, LlamaCppBackend], endpoint: str, body: dict[str, Any]
) -> None:
    direct, backend = engine
    whole = json.loads(warm(direct, endpoint, body))
    # Long enough that the worker requests a stream.
    long = {**body, "cache_prompt": False, "padding": "x" * SHORT_BODY_BYTES}
    request = backend.request(endpoint, "", json.dumps(long).encode(), stream=False)
    assert request.streamed
    status, answer = direct.post(request.path, request.body)
    assert status == 200, answer
    stream, assembler = filter_of(request), NativeCompletionAssembler(request.tokens)
    for start in range(0, len(answer), 333):
        assembler.feed(stream.feed(answer[start : start + 333]).data)
    assert stream.finished
    result = json.loads(assembler.answer())
    assert comparable(result) == comparable(whole)
    for one, other in zip(*([each] if isinstance(each, dict) else each for each in (result, whole)), strict=True):
        assert list(one) == list(other)


@pytest.mark.parametrize(("endpoint", "body"), CASES, ids=str)
def test_a_stream_equals_the_engines_own(
    engine: tuple[DirectEngine, LlamaCppBackend], endpoint: str, body: dict[str, Any]
) -> None:
    direct, backend = engine
    own = events_of(warm(direct, endpoint, {**body, "stream": True}))
    long = {**body, "stream": True, "cache_prompt": False, "padding": "x" * SHORT_BODY_BYTES}
    request = backend.request(endpoint, "", json.dumps(long).encode(), stream=True)
    status, answer = direct.post(request.path, request.body)
    assert status == 200, answer
    stream = filter_of(request)
    filtered = [stream.feed(answer[start : start + 333]) for start in range(0, len(answer), 333)]
    result = events_of(b"".join(each.data for each in filtered))
    assert stream.finished

    def of_index(events: list[Any]) -> dict[int, list[Any]]:
        """Completions run side by side: only the order of the events of each is certain."""
        return {
            index: [comparable(event) for event in events if event["index"] == index]
            for index in {event["index"] for event in events}
        }

    assert of_index(result) == of_index(own)
    predicted = sum(event["tokens_predicted"] for event in result if event["stop"])
    assert sum(summary.usage.completion_tokens for summary in stream.summaries() if summary.usage) == predicted
    assert sum(each.tokens for each in filtered) == sum(not event["stop"] for event in result)


@pytest.mark.parametrize(
    ("stop", "kept"),
    [("short story", 7), ("very sm", 2), ("ort st", 7), ("mall model knew", 3), ("Once", 0), ("never", 12)],
)
@pytest.mark.parametrize("padding", [0, SHORT_BODY_BYTES])
def test_probabilities_are_those_of_the_tokens_before_the_stop_word(
    engine: tuple[DirectEngine, LlamaCppBackend], stop: str, kept: int, padding: int
) -> None:
    direct, backend = engine
    body = {**SAY, "stop": [stop], "n_probs": 1, "padding": "x" * padding}
    request = backend.request("completion", "", json.dumps(body).encode(), stream=False)
    assert request.streamed, "or the engine would not notice that its client hangs up"
    _, answer = direct.post(request.path, request.body)
    assembler = NativeCompletionAssembler(return_tokens=False)
    assembler.feed(filter_of(request).feed(answer).data)
    whole = json.loads(assembler.answer())
    probabilities = whole["completion_probabilities"]
    assert len(probabilities) == kept
    assert whole["content"].startswith("".join(each["token"] for each in probabilities))


def test_a_short_answer_needs_no_stream(engine: tuple[DirectEngine, LlamaCppBackend]) -> None:
    direct, backend = engine
    body = {**SAY, "n_predict": UNSTREAMED_MAX_TOKENS}
    request = backend.request("completion", "", json.dumps(body).encode(), stream=False)
    assert not request.streamed
    _, answer = direct.post(request.path, request.body)
    (summary,) = native_summaries(answer)
    assert summary.usage is not None
    assert (summary.usage.prompt_tokens, summary.usage.completion_tokens) == (3, UNSTREAMED_MAX_TOKENS)


def test_probabilities_are_kept_as_they_came() -> None:
    """As objects they had five times the size, and a worker held gigabytes."""
    entries = [{"id": each, "token": f"t{each}", "bytes": [116, 48], "logprob": -each / 7} for each in range(1_000)]
    token = {"id": 1, "token": "a", "bytes": [97], "logprob": -0.1, "top_logprobs": entries}
    events = {"index": 0, "content": "a", "stop": False, "completion_probabilities": [token]}
    event = b"data: " + json.dumps(events).encode() + b"\n\n"
    last = b'data: {"index":0,"content":"","stop":true}\n\n'
    assembler = NativeCompletionAssembler(return_tokens=False)
    tracemalloc.start()
    try:
        for _ in range(20):
            assembler.feed(event)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1.5 * 20 * len(event)
    assembler.feed(last)
    assert json.loads(assembler.answer())["completion_probabilities"] == [token] * 20


def test_a_stream_of_which_a_completion_is_missing_is_not_finished() -> None:
    stream = NativeCompletionFilter(False, "a", "a", 2)
    stream.feed(b'data: {"index":0,"content":"","stop":true}\n\n')
    assert not stream.finished
    stream.feed(b'data: {"index":1,"content":"x","stop":false}\n\n')
    assert not stream.finished
    stream.feed(b'data: {"index":1,"content":"","stop":true}\n\n')
    assert stream.finished


def test_progress_is_removed_unless_it_was_asked_for() -> None:
    progress = b'data: {"index":0,"content":"","stop":false,"prompt_progress":{"total":6}}\n\n'
    token = b'data: {"index":0,"content":"a","stop":false}\n\n'
    assert NativeCompletionFilter(False, "a", "a", 1).feed(progress + token) == (token, 1, True)
    assert NativeCompletionFilter(True, "a", "a", 1).feed(progress + token) == (progress + token, 1, True)


def test_words_of_a_client_do_not_end_a_stream() -> None:
    stream = NativeCompletionFilter(False, "a", "b", 1)
    event = b"data: " + json.dumps({"index": 0, "content": '"stop":true "model":"a"', "stop": False}).encode() + b"\n\n"
    event = event.replace(b": ", b":").replace(b"data:", b"data: ")
    assert stream.feed(event).data == event
    assert not stream.finished


def test_an_error_in_a_stream_is_its_end() -> None:
    stream = NativeCompletionFilter(False, "a", "a", 1)
    stream.feed(b'data: {"error":{"code":500,"message":"no","type":"server_error"}}\n\n')
    assert stream.error is not None
    assert not stream.finished
