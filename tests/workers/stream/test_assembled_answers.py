"""An answer assembled from a stream equals the engine's own, field by field."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.workers.direct_engine import DirectEngine, running_engine
from workers.backends.llamacpp.backend import LlamaCppBackend
from workers.backends.requests.generation_request import SHORT_BODY_BYTES
from workers.stream.response_assembler import ResponseAssembler
from workers.stream.sse_filter import SseFilter
from workers.stream.usage import with_usage_of_all

SAY: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 12, "temperature": 0, "seed": 1}
TEXT: dict[str, Any] = {"prompt": "hi", "max_tokens": 12, "temperature": 0, "seed": 1}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}

CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("tiny-chat", "chat/completions", SAY),
    ("tiny-chat", "chat/completions", {**SAY, "max_tokens": 500}),
    ("tiny-chat", "chat/completions", {**SAY, "n": 2}),
    ("tiny-chat", "chat/completions", {**SAY, "logprobs": True, "top_logprobs": 2}),
    ("tiny-chat", "chat/completions", {**SAY, "n": 2, "logprobs": True, "top_logprobs": 2}),
    ("tiny-chat", "chat/completions", {**SAY, "stop": ["time"]}),
    ("tiny-chat", "chat/completions", {**SAY, "stop": ["time"], "logprobs": True, "top_logprobs": 2}),
    ("tiny-chat", "chat/completions", {**SAY, "max_tokens": 1}),
    ("tiny-chat", "chat/completions", {**SAY, "stream_options": {"include_usage": True}}),
    ("tiny-chat", "chat/completions", {**SAY, "verbose": True}),
    ("tiny-chat", "chat/completions", {**SAY, "timings_per_token": True}),
    ("tiny-chat", "chat/completions", {**SAY, "max_tokens": 60, "response_format": {"type": "json_object"}}),
    ("tiny-chat", "completions", TEXT),
    ("tiny-chat", "completions", {**TEXT, "verbose": True}),
    ("tiny-chat", "completions", {**TEXT, "return_tokens": True}),
    ("tiny-chat", "completions", {**TEXT, "timings_per_token": True}),
    ("tiny-chat", "completions", {**TEXT, "grammar": 'root ::= "yes" | "no"'}),
    ("tiny-chat", "completions", {**TEXT, "logprobs": 2}),
    ("tiny-chat", "completions", {**TEXT, "n": 2}),
    ("tiny-chat", "completions", {**TEXT, "stop": ["time"]}),
    ("tiny-chat", "completions", {**TEXT, "stop": ["time"], "logprobs": 2}),
    ("tiny-chat", "completions", {**TEXT, "prompt": ["hi", "yo"]}),
    ("tiny-chat", "completions", {**TEXT, "prompt": ["hi", "yo"], "n": 2, "logprobs": 1}),
    ("tiny-chat", "completions", {**TEXT, "prompt": [1, 2, 3]}),
    ("tiny-chat", "completions", {**TEXT, "prompt": ""}),
    ("tiny-tool", "chat/completions", {**SAY, "tools": [WEATHER], "max_tokens": 60}),
    ("tiny-tool", "chat/completions", {**SAY, "tools": [WEATHER], "max_tokens": 60, "n": 2}),
    ("tiny-tool", "chat/completions", {**SAY, "tools": [WEATHER], "max_tokens": 4}),
    (
        "tiny-tool",
        "chat/completions",
        {**SAY, "tools": [WEATHER], "max_tokens": 60, "logprobs": True, "top_logprobs": 2},
    ),
    ("tiny-tool", "chat/completions", {**SAY, "max_tokens": 60}),
    ("tiny-think", "chat/completions", {**SAY, "max_tokens": 60}),
    ("tiny-think", "chat/completions", {**SAY, "max_tokens": 3}),
    ("tiny-think", "chat/completions", {**SAY, "max_tokens": 60, "logprobs": True, "top_logprobs": 2}),
    ("tiny-think", "chat/completions", {**SAY, "max_tokens": 60, "n": 2}),
]


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[DirectEngine, LlamaCppBackend]]]:
    cache = str(tmp_path_factory.mktemp("cache"))
    with (
        running_engine("tiny-chat", cache) as chat,
        running_engine("tiny-tool", cache) as tool,
        running_engine("tiny-think", cache) as think,
    ):
        yield {"tiny-chat": chat, "tiny-tool": tool, "tiny-think": think}


def assembled(direct: DirectEngine, backend: LlamaCppBackend, endpoint: str, body: dict[str, Any], pieces: int) -> Any:
    # Long enough that the worker requests a stream.
    long = {**body, "metadata": {"padding": "x" * SHORT_BODY_BYTES}}
    request = backend.request(endpoint, "", json.dumps(long).encode(), stream=False)
    status, answer = direct.post(request.path, request.body)
    assert status == 200, answer
    if not request.streamed:
        assert "logprobs" in body or "verbose" in body
        return json.loads(with_usage_of_all(answer) if "n" in body else answer)
    stream = SseFilter(usage=True, progress=False, prompts=request.prompts, choices=request.choices)
    assembler = ResponseAssembler(chat=endpoint == "chat/completions")
    for start in range(0, len(answer), pieces):
        assembler.feed(stream.feed(answer[start : start + pieces]).data)
    assert stream.finished
    return json.loads(assembler.answer())


def comparable(answer: Any) -> Any:
    """Replace what differs between two runs by its type."""
    for name, kind in (("id", str), ("created", int)):
        answer[name] = kind.__name__ if isinstance(answer[name], kind) else answer[name]
    answer["timings"] = sorted(answer["timings"])
    verbose = answer.get("__verbose", {})
    if verbose:
        assert isinstance(verbose.pop("timings"), dict)
    for choice in answer["choices"]:
        for call in choice.get("message", {}).get("tool_calls", []):
            call["id"] = len(call["id"])
    return answer


def count_all(whole: Any, result: Any, body: dict[str, Any]) -> None:
    """Multiply the engine's usage, which is that of its first completion, for all of them: prompts and answers have the same length here."""
    prompt = body.get("prompt")
    prompts = len(prompt) if isinstance(prompt, list) and isinstance(prompt[0], str) else 1
    choices = body.get("n", 1)
    if prompts * choices > 1:
        usage = whole["usage"]
        usage["prompt_tokens"] *= prompts
        usage["completion_tokens"] *= prompts * choices
        usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]
        usage["prompt_tokens_details"] = result["usage"]["prompt_tokens_details"]


@pytest.mark.parametrize(("model", "endpoint", "body"), CASES, ids=str)
def test_equals_the_engines_own(
    engines: dict[str, tuple[DirectEngine, LlamaCppBackend]], model: str, endpoint: str, body: dict[str, Any]
) -> None:
    direct, backend = engines[model]
    direct.post(
        f"/v1/{endpoint}", json.dumps(body).encode()
    )  # so that both of the next requests find the same prompt cache
    status, answer = direct.post(f"/v1/{endpoint}", json.dumps(body).encode())
    assert status == 200, answer
    whole = json.loads(answer)
    result = assembled(direct, backend, endpoint, body, 333)
    count_all(whole, result, body)
    assert list(result) == list(whole)
    assert comparable(result) == comparable(whole)


def test_saved_caches_are_private(tmp_path: Path) -> None:
    with running_engine("tiny-chat", str(tmp_path)) as (_, backend):
        assert backend.saved.stat().st_mode & 0o777 == 0o700
