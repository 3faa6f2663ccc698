"""What the published packages send and read about prompt caches: the fields change no answer, the numbers are the engine's."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.support.clients.anthropic_client import anthropic_client
from tests.support.clients.openai_client import openai_client
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.server import LemonbusServer

if TYPE_CHECKING:
    import anthropic
    import openai

CHAT = "extra.tiny-chat"
CACHED: Any = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
BREAKPOINT: Any = {"prompt_cache_breakpoint": {"type": "ephemeral"}}
OPENAI: Any = {"prompt_cache_key": "user-7", "prompt_cache_retention": "24h"}
CITY: Any = {"type": "object", "properties": {"city": {"type": "string"}}}
numbers = itertools.count(1)


class Counts(NamedTuple):
    """Tokens of a prompt, and those of them that were found in the cache."""

    prompt: int
    cached: int


Ask = Callable[[LemonbusServer, str], tuple[Counts, str]]
"""Sends a text, and returns what was counted, and the answer."""


def chat(server: LemonbusServer, text: str) -> tuple[Counts, str]:
    with openai_client(server) as client:
        answer = client.chat.completions.create(model=CHAT, messages=[user_message(text)], **OPENAI)
        return of_openai(answer.usage), answer.choices[0].message.content or ""


def streamed_chat(server: LemonbusServer, text: str) -> tuple[Counts, str]:
    with openai_client(server) as client:
        options: Any = {"stream": True, "stream_options": {"include_usage": True}, **OPENAI}
        chunks = list(client.chat.completions.create(model=CHAT, messages=[user_message(text)], **options))
        written = "".join(each.choices[0].delta.content or "" for each in chunks if each.choices)
        return of_openai(chunks[-1].usage), written


def user_message(text: str) -> Any:
    return {"role": "user", "content": [{"type": "text", "text": text, **BREAKPOINT, **CACHED}]}


def completion(server: LemonbusServer, text: str) -> tuple[Counts, str]:
    with openai_client(server) as client:
        answer = client.completions.create(model=CHAT, prompt=text, max_tokens=4, extra_body=OPENAI)
        return of_openai(answer.usage), CHAT_TEXT


def response(server: LemonbusServer, text: str) -> tuple[Counts, str]:
    with openai_client(server) as client:
        answer = client.responses.create(model=CHAT, input=text, store=False, **OPENAI)
        assert (answer.prompt_cache_key, answer.prompt_cache_retention) == ("user-7", "24h")
        assert answer.usage is not None
        return Counts(answer.usage.input_tokens, answer.usage.input_tokens_details.cached_tokens), answer.output_text


def message(server: LemonbusServer, text: str) -> tuple[Counts, str]:
    with anthropic_client(server) as client:
        answer = client.messages.create(**cached_everywhere(text))
        (block,) = answer.content
        return of_anthropic(answer.usage), getattr(block, "text", "")


def streamed_message(server: LemonbusServer, text: str) -> tuple[Counts, str]:
    with anthropic_client(server) as client, client.messages.stream(**cached_everywhere(text)) as stream:
        answer = stream.get_final_message()
        return of_anthropic(answer.usage), getattr(answer.content[0], "text", "")


def cached_everywhere(text: str) -> Any:
    """A request with ``cache_control`` in every place that may have it."""
    return {
        "model": CHAT,
        "max_tokens": 100,
        "system": [{"type": "text", "text": "Be brief.", **CACHED}],
        "tools": [{"name": "weather", "description": "Weather", "input_schema": CITY, **CACHED}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Weather?", **CACHED}]},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "t", "name": "weather", "input": {}, **CACHED}],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t",
                        **CACHED,
                        "content": [{"type": "text", "text": "Sun", **CACHED}],
                    },
                    {
                        "type": "document",
                        "source": {"type": "text", "media_type": "text/plain", "data": text},
                        **CACHED,
                    },
                ],
            },
        ],
        **CACHED,
    }


def of_openai(usage: openai.types.CompletionUsage | None) -> Counts:
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    return Counts(usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens or 0)


def of_anthropic(usage: anthropic.types.Usage) -> Counts:
    """The parts of Anthropic's sum; no part is written by request, because the engine keeps what it has processed."""
    read, written = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
    assert read is not None
    assert written == 0
    return Counts(usage.input_tokens + read, read)


@pytest.mark.parametrize("ask", [chat, streamed_chat, completion, response, message, streamed_message])
def test_a_prompt_that_was_sent_before_is_counted_as_cached(shared_server: LemonbusServer, ask: Ask) -> None:
    text = f"{ask.__name__} {next(numbers)} " * 12
    first, answered = ask(shared_server, text)
    assert answered == CHAT_TEXT
    assert 0 <= first.cached < first.prompt
    again, _ = ask(shared_server, text)
    assert again.prompt == first.prompt
    assert first.prompt // 2 < again.cached < again.prompt, "all but its last tokens"
    assert first.cached < again.cached


def test_a_retention_that_is_not_published_is_refused(shared_server: LemonbusServer) -> None:
    body = {"model": CHAT, "input": "Hi", "prompt_cache_retention": "forever"}
    answer = shared_server.client.post("/v1/responses", body)
    assert (answer.status, answer.error["param"]) == (400, "prompt_cache_retention")
