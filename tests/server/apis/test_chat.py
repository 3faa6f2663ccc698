"""Chat through the unmodified ``openai`` package, streamed and not, against a real llama.cpp."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.clients.http_client import chat_body, engine_client
from tests.support.clients.openai_client import openai_client
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.server import LemonbusServer

if TYPE_CHECKING:
    import openai

CHAT, LOOP = "extra.tiny-chat", "extra.tiny-loop"
HI: list[Any] = [{"role": "user", "content": "hi"}]
TOKENS = 20
"""As many as the story has."""
VOLATILE = ("id", "created", "timings", "system_fingerprint")


@pytest.fixture(params=["/v1", "/api/v1", "/v0", "/api/v0"])
def client(request: pytest.FixtureRequest, shared_server: LemonbusServer) -> Iterator[openai.OpenAI]:
    with openai_client(shared_server, request.param) as made:
        yield made


def test_a_whole_answer(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=CHAT, messages=HI, temperature=0)
    assert answer.choices[0].message.content == CHAT_TEXT
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == CHAT
    assert answer.object == "chat.completion"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == TOKENS + 1, "the end token counts"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_stream(client: openai.OpenAI) -> None:
    chunks = list(client.chat.completions.create(model=CHAT, messages=HI, temperature=0, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == CHAT_TEXT
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert {chunk.model for chunk in chunks} == {CHAT}
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert all(chunk.usage is None for chunk in chunks), "no client asked for it"


def test_a_stream_with_usage(client: openai.OpenAI) -> None:
    asked = {"include_usage": True}
    chunks = list(client.chat.completions.create(model=CHAT, messages=HI, stream=True, stream_options=asked))  # type: ignore[call-overload]
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == TOKENS + 1


def test_legacy_completions(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=LOOP, prompt="hi", max_tokens=TOKENS, temperature=0)
    assert answer.choices[0].text == CHAT_TEXT
    assert answer.choices[0].finish_reason == "length"
    assert answer.model_extra is not None
    assert answer.model_extra["text"] == CHAT_TEXT, "the preview's field"
    stream = client.completions.create(model=LOOP, prompt="hi", max_tokens=TOKENS, temperature=0, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream if chunk.choices) == CHAT_TEXT


def test_several_choices(shared_server: LemonbusServer) -> None:
    answer = shared_server.client.chat(LOOP, n=3, max_tokens=TOKENS).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert {choice["message"]["content"] for choice in answer["choices"]} == {CHAT_TEXT}
    stream = shared_server.client.chat(LOOP, n=2, max_tokens=TOKENS, stream=True)
    assert stream.done
    for index in (0, 1):
        deltas = [choice["delta"] for chunk in stream.chunks for choice in chunk["choices"] if choice["index"] == index]
        assert "".join(delta.get("content") or "" for delta in deltas) == CHAT_TEXT


def test_logprobs(shared_server: LemonbusServer) -> None:
    asked = {"logprobs": True, "top_logprobs": 2, "max_tokens": 3}
    whole = shared_server.client.chat(LOOP, **asked).json()["choices"][0]["logprobs"]["content"]
    assert [token["token"] for token in whole] == [" Once", " a", " very"]
    assert all(len(token["top_logprobs"]) == 2 for token in whole)
    chunks = shared_server.client.chat(LOOP, **asked, stream=True).chunks
    streamed = [choice["logprobs"] for chunk in chunks for choice in chunk["choices"] if choice.get("logprobs")]
    assert [token["token"] for each in streamed for token in each["content"]] == [" Once", " a", " very"]


def test_stop_words(shared_server: LemonbusServer) -> None:
    answer = shared_server.client.chat(LOOP, stop=[" model", "nothing"], max_tokens=TOKENS)
    assert answer.text == " Once a very small"
    assert answer.json()["choices"][0]["finish_reason"] == "stop"


def test_unknown_fields_reach_the_engine(shared_server: LemonbusServer) -> None:
    first = shared_server.client.chat(LOOP, max_tokens=1, logprobs=True).json()["choices"][0]
    token = first["logprobs"]["content"][0]["id"]
    assert (
        shared_server.client.chat(LOOP, max_tokens=1, logit_bias=[[token, False]]).text != first["message"]["content"]
    )


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"n": 2, "max_tokens": 5},
        {"logprobs": True, "top_logprobs": 3, "max_tokens": 5},
        {"stop": " model"},
        {"max_tokens": 1},
    ],
    ids=lambda fields: ",".join(fields) or "plain",
)
def test_a_whole_answer_equals_the_engines_own(shared_server: LemonbusServer, fields: dict[str, Any]) -> None:
    ours = shared_server.client.chat(CHAT, cache_prompt=False, **fields).json()
    engine = engine_client(shared_server.engine(CHAT))
    theirs = engine.post("/v1/chat/completions", chat_body(CHAT, cache_prompt=False, **fields)).json()
    assert list(ours) == list(theirs), "the same fields in the same order"
    for answer in (ours, theirs):
        assert all(answer.pop(name) for name in VOLATILE)
    if "n" in fields:  # llama-server counts the first choice alone
        tokens = fields["n"] * theirs["usage"]["completion_tokens"]
        theirs["usage"] |= {"completion_tokens": tokens, "total_tokens": theirs["usage"]["prompt_tokens"] + tokens}
    assert ours == theirs


def test_an_alias_of_the_name_is_answered_as_asked(shared_server: LemonbusServer) -> None:
    answer = shared_server.client.chat(f"{CHAT}:latest", max_tokens=1).json()
    assert answer["model"] == f"{CHAT}:latest"


def test_the_fingerprint_is_the_engines_build(shared_server: LemonbusServer) -> None:
    whole, short = (
        shared_server.client.chat(CHAT, **more).json()["system_fingerprint"] for more in ({}, {"max_tokens": 1})
    )
    streamed = {chunk["system_fingerprint"] for chunk in shared_server.client.chat(CHAT, stream=True).chunks}
    (ready,) = {
        line["version"]
        for line in shared_server.lines
        if line.get("event") == "model ready" and line.get("model") == CHAT
    }
    assert streamed == {whole} == {short} == {ready}
    assert "unknown" not in whole
