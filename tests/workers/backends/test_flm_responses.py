"""The stream and the vectors of flm, as llama-server would have written them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.config.settings import Settings
from protocol.failures import Code
from protocol.models.recipes import ModelSpec
from workers.backends.flm.backend import FlmBackend
from workers.backends.flm.responses import convert_embeddings
from workers.engine.error_responses import failure_in_body
from workers.stream.chunk_translator import ChunkTranslator
from workers.stream.sse_filter import SseFilter

TAG = "llama3.2:1b"
BACKEND = FlmBackend(ModelSpec("user.x", f"flm:{TAG}", "flm", "npu", "llm", TAG), Settings())
CHUNK = b'{"id":"c","object":"o","created":7,"model":"t","choices":[%s]%s}'


def event(choice: bytes, more: bytes = b"") -> bytes:
    return b"data: " + CHUNK % (choice, more) + b"\n\n"


CHAT = b"".join(
    [
        event(b'{"index":0,"delta":{"role":"assistant","reasoning_content":"hm"},"finish_reason":null}'),
        event(b'{"index":0,"delta":{"role":"assistant","content":"a\\"finish_reason\\":"},"finish_reason":null}'),
        event(b'{"index":0,"delta":null,"finish_reason":null}'),
        event(
            b'{"index":0,"delta":{"tool_calls":[{"index":0,"id":"1","function":{"name":"f"}}]},"finish_reason":null}'
        ),
        event(
            b'{"index":0,"delta":{"content":null},"finish_reason":"tool_calls"}',
            b',"usage":{"prompt_tokens":4,"completion_tokens":2,"decoding_duration":0.5,"prefill_speed_tps":null}',
        ),
        b"data: [DONE]\n\n",
    ]
)


def through(data: bytes, pieces: list[int], usage: bool = False) -> tuple[list[Any], int, SseFilter]:
    """Return what a client gets for flm's bytes, which arrive in these pieces."""
    chunks, stream = ChunkTranslator(chat=True, model=TAG), SseFilter(usage, progress=False, alias=TAG, model="M")
    shown, tokens, rest = b"", 0, data
    for size in [*pieces, len(data)]:
        got = stream.feed(chunks.feed(rest[:size]))
        rest = rest[size:]
        shown, tokens = shown + got.data, tokens + got.tokens
    return [json.loads(each[6:]) for each in shown.split(b"\n\n") if each], tokens, stream


def test_a_chat_is_translated_to_llama_servers_form() -> None:
    shown, tokens, stream = through(CHAT, [])
    assert [each["choices"][0]["delta"] for each in shown] == [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "hm"},
        {"content": 'a"finish_reason":'},
        {"tool_calls": [{"index": 0, "id": "1", "function": {"name": "f"}}]},
        {},
    ]
    assert [each["choices"][0]["finish_reason"] for each in shown] == [None, None, None, None, "tool_calls"]
    assert {each["model"] for each in shown} == {"M"}
    assert (tokens, stream.finished) == (3, True)
    assert shown[-1]["timings"] == {
        "cache_n": 0,
        "prompt_n": 4,
        "prompt_ms": 0.0,
        "prompt_per_second": 0.0,
        "predicted_n": 2,
        "predicted_ms": 500.0,
        "predicted_per_second": 4.0,
    }
    (tail,) = stream.summaries()
    assert tail.usage is not None
    assert tail.usage.completion_tokens == 2
    asked = through(CHAT, [], usage=True)[0]
    assert (asked[-1]["choices"], asked[-1]["usage"]["completion_tokens"]) == ([], 2)


def test_a_role_waits_for_the_first_token_or_the_end() -> None:
    role = event(b'{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}')
    assert through(role, [])[:2] == ([], 0)
    token = event(b'{"index":0,"delta":{"content":"a"},"finish_reason":null}')
    end = event(b'{"index":0,"delta":{},"finish_reason":"stop"}')
    for sent, deltas in ((role + token, [{"content": "a"}]), (role + end + b"data: [DONE]\n\n", [{}])):
        shown, _, _ = through(sent, [])
        assert [each["choices"][0]["delta"] for each in shown] == [{"role": "assistant", "content": ""}, *deltas]


@given(st.lists(st.integers(1, 200), max_size=30))
def test_the_split_of_the_bytes_makes_no_difference(pieces: list[int]) -> None:
    raised, once = through(CHAT, pieces), through(CHAT, [])
    assert (raised[0], raised[1], raised[2].finished) == (once[0], once[1], once[2].finished)


def test_a_text_completion_ends_with_what_llama_server_ends_with() -> None:
    chunks = ChunkTranslator(chat=False, model=TAG)
    translated = chunks.feed(event(b'{"text":" a","index":0,"logprobs":null,"finish_reason":null}'))
    translated += chunks.feed(
        event(b'{"finish_reason":"length"}', b',"usage":{"prompt_tokens":1,"completion_tokens":1}')
    )
    translated += chunks.feed(b"data: [DONE]\n\n").removesuffix(b"data: [DONE]\n\n")
    first, last, usage = (json.loads(each[6:]) for each in translated.split(b"\n\n") if each)
    assert first["choices"] == [{"text": " a", "index": 0, "logprobs": None, "finish_reason": None}]
    assert last["choices"] == [{"text": "", "index": 0, "logprobs": None, "finish_reason": "length"}]
    assert (usage["choices"], "timings" in usage) == ([], False)


@pytest.mark.parametrize("reason", [b"error", b"cancel"])
def test_an_end_with_an_error_as_its_reason_is_an_error(reason: bytes) -> None:
    _, _, stream = through(event(b'{"index":0,"delta":{},"finish_reason":"%s"}' % reason) + b"data: [DONE]\n\n", [])
    assert stream.error is not None


def test_an_error_instead_of_a_stream_is_kept() -> None:
    _, _, stream = through(b'{"error":"Failed to load x model!"}', [7, 9])
    assert not stream.finished
    failure = failure_in_body(stream.rest, BACKEND)
    assert failure is not None
    assert (failure.code, failure.message) == (Code.BACKEND_ERROR, "flm: Failed to load x model!")
    assert failure_in_body(b'{"choices":[{"text":"{\\"error\\":1}"}]}', BACKEND) is None


@pytest.mark.parametrize("answer", [b"null", b"", b"{}", b'{"data":[{"embedding":"x"}]}'])
def test_an_answer_without_vectors_is_refused(answer: bytes) -> None:
    with pytest.raises(ValueError):
        convert_embeddings(answer, "M", coded=False)
