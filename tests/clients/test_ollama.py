"""The unmodified ``ollama`` package: text, chats, streams, tools, images, vectors, loads and errors."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.clients.ollama_client import ollama_client
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    import ollama

CHAT, LOOP, TALE = "extra.tiny-chat", "extra.tiny-loop", "extra.tiny-tale"
TOOL, THINK, VISION, EMBED = "extra.tiny-tool", "extra.tiny-think", "extra.tiny-vision", "extra.tiny-embed"
HELLO = [{"role": "user", "content": "Hello"}]
ONE_WAY = {"num_predict": 100, "temperature": 0, "seed": 1}
"""The most probable answer, and the same one each time."""
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def client(shared_server: LemonbusServer) -> Iterator[ollama.Client]:
    client = ollama_client(shared_server)
    yield client
    client.close()


def get_weather(city: str) -> str:
    """Get the weather.

    Args:
      city: The city
    """
    return f"sunny in {city}"


def has_cost(answer: Any, tokens: int) -> None:
    """Check the fields of a last line."""
    assert answer.done
    assert answer.eval_count == tokens
    assert answer.prompt_eval_count > 0
    assert answer.eval_duration > 0
    assert answer.total_duration >= answer.load_duration + answer.prompt_eval_duration + answer.eval_duration > 0


def test_generate(client: ollama.Client) -> None:
    answer = client.generate(model=LOOP, prompt="Hello", system="Be brief.", options={"num_predict": 5, "seed": 1})
    assert CHAT_TEXT.strip().startswith((answer.response or "").strip())
    assert (answer.model, answer.done_reason) == (LOOP, "length")
    assert answer.created_at
    has_cost(answer, 5)


def test_generate_as_a_stream(client: ollama.Client) -> None:
    *pieces, last = client.generate(model=CHAT, prompt="Hello", stream=True)
    assert "".join(piece.response or "" for piece in pieces).strip() == CHAT_TEXT.strip()
    assert not any(piece.done for piece in pieces)
    assert (last.response, last.done_reason) == ("", "stop")
    has_cost(last, len(pieces) + 1)  # the end is also a token


def test_a_raw_prompt_passes_no_template(client: ollama.Client) -> None:
    raw = client.generate(model=CHAT, prompt="Hello", raw=True, options={"num_predict": 2})
    templated = client.generate(model=CHAT, prompt="Hello", options={"num_predict": 2})
    assert raw.prompt_eval_count is not None
    assert templated.prompt_eval_count is not None
    assert raw.prompt_eval_count < templated.prompt_eval_count
    assert raw.response


def test_chat(client: ollama.Client) -> None:
    answer = client.chat(model=CHAT, messages=HELLO)
    assert answer.message.role == "assistant"
    assert (answer.message.content or "").strip() == CHAT_TEXT.strip()
    assert answer.message.thinking is answer.message.tool_calls is None


def test_chat_as_a_stream(client: ollama.Client) -> None:
    *pieces, last = client.chat(model=CHAT, messages=HELLO, stream=True)
    assert "".join(piece.message.content or "" for piece in pieces).strip() == CHAT_TEXT.strip()
    assert {piece.message.role for piece in [*pieces, last]} == {"assistant"}
    has_cost(last, len(pieces) + 1)


@pytest.mark.parametrize("stream", [True, False])
def test_a_tool_round_trip(client: ollama.Client, stream: bool) -> None:
    answers: Any = client.chat(model=TOOL, messages=HELLO, tools=[get_weather], stream=stream)
    answers = list(answers) if stream else [answers]
    (call,) = [call for answer in answers for call in answer.message.tool_calls or []]
    assert (call.function.name, call.function.arguments) == ("get_weather", {"city": "Paris"})
    assert answers[-1].done_reason == "stop"
    result = get_weather(**call.function.arguments)
    asked = {"role": "assistant", "content": "", "tool_calls": [call]}
    answered = {"role": "tool", "tool_name": "get_weather", "content": result}
    final = client.chat(model=THINK, messages=[*HELLO, asked, answered], tools=[get_weather])
    assert final.message.content == "Forty two."


@pytest.mark.parametrize("stream", [True, False])
def test_thoughts_are_apart_from_the_answer(client: ollama.Client, stream: bool) -> None:
    answers: Any = client.chat(model=THINK, messages=HELLO, think=True, stream=stream)
    answers = list(answers) if stream else [answers]
    assert "".join(answer.message.content or "" for answer in answers) == "Forty two."
    thoughts = "".join(answer.message.thinking or "" for answer in answers)
    assert thoughts
    assert "<think>" not in thoughts
    text: Any = client.generate(model=THINK, prompt="Hello", stream=stream)
    text = list(text) if stream else [text]
    assert "".join(answer.thinking or "" for answer in text).strip() == thoughts.strip()


@pytest.mark.parametrize("raw", [True, False])
def test_an_answer_that_follows_a_schema(client: ollama.Client, raw: bool) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"], "additionalProperties": False}
    for wanted in (schema, "json"):
        # llama.cpp lets a chat's JSON begin with a fence, which it removes once it is complete.
        answer = client.generate(model=CHAT, prompt="Hello", format=wanted, raw=raw, options=ONE_WAY)
        assert (answer.response or "").lstrip().startswith("{")


def test_an_image_is_part_of_the_prompt(client: ollama.Client) -> None:
    blind = client.chat(model=VISION, messages=HELLO, options={"num_predict": 1})
    seen = client.chat(
        model=VISION, messages=[{"role": "user", "content": "Hello", "images": [PIXEL]}], options={"num_predict": 1}
    )
    assert (seen.prompt_eval_count or 0) >= (blind.prompt_eval_count or 0) + 16
    text = client.generate(model=VISION, prompt="Hello", images=[PIXEL], options={"num_predict": 1})
    assert text.prompt_eval_count == seen.prompt_eval_count


def test_probabilities(client: ollama.Client) -> None:
    whole = client.chat(model=CHAT, messages=HELLO, logprobs=True, top_logprobs=2, options={"num_predict": 2})
    assert whole.logprobs is not None
    assert "".join(each.token for each in whole.logprobs) == whole.message.content
    assert [len(each.top_logprobs or []) for each in whole.logprobs] == [2, 2]
    stream = client.generate(model=CHAT, prompt="Hello", logprobs=True, stream=True, options={"num_predict": 2})
    assert [each.token for line in stream for each in line.logprobs or []] == [each.token for each in whole.logprobs]


def test_vectors(client: ollama.Client) -> None:
    answer = client.embed(model=EMBED, input=["a lemon", "a lime"])
    one, two = answer.embeddings
    assert len(one) == len(two) == 32
    assert one != two
    assert answer.prompt_eval_count
    assert client.embeddings(model=EMBED, prompt="a lemon").embedding == pytest.approx(one, abs=1e-6)
    short = client.embed(model=EMBED, input="a lemon", dimensions=4).embeddings[0]
    assert sum(each * each for each in short) == pytest.approx(1)
    assert short[0] / one[0] == pytest.approx(short[3] / one[3])


def test_keep_alive_loads_and_unloads(client: ollama.Client, shared_server: LemonbusServer) -> None:
    for load in (
        lambda: client.generate(model=TALE, keep_alive="5m"),
        lambda: client.generate(model=TALE),
        lambda: client.chat(model=TALE),
    ):
        assert load().done_reason == "load"
        shared_server.wait_loaded(TALE)
        assert client.chat(model=TALE, messages=[], keep_alive=0).done_reason == "unload"
        wait_for(lambda: shared_server.engine_now(TALE) is None, "the model is unloaded")
    *_, last = client.chat(model=TALE, messages=HELLO, keep_alive=0, stream=True)
    assert last.done
    wait_for(lambda: shared_server.engine_now(TALE) is None, "the model is unloaded after its answer")


def test_errors_are_response_errors(client: ollama.Client) -> None:
    import ollama  # noqa: PLC0415 - only where it is needed

    for ask, status, text in (
        (lambda: client.generate(model="nope", prompt="Hello"), 404, "'nope' not found"),
        (lambda: list(client.generate(model="nope", prompt="Hello", stream=True)), 404, "'nope' not found"),
        (lambda: client.chat(model="nope", messages=HELLO), 404, "'nope' not found"),
        (lambda: client.chat(model="nope"), 404, "'nope' not found"),
        (lambda: client.embed(model="nope", input="a"), 404, "'nope' not found"),
        (lambda: client.show("nope"), 404, "'nope' not found"),
        (lambda: client.delete("nope"), 404, "'nope' not found"),
        (lambda: client.generate(model=CHAT, prompt="a", suffix="b"), 400, "a suffix is not supported here"),
        (lambda: client.embed(model=CHAT, input="a"), 400, "does not serve embeddings"),
    ):
        with pytest.raises(ollama.ResponseError) as raised:
            ask()
        assert raised.value.status_code == status
        assert text in raised.value.error
        assert str(raised.value).startswith(raised.value.error)
