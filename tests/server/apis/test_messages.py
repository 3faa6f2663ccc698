"""Anthropic's Messages API by the unmodified ``anthropic`` package: every kind of answer, tools, images, errors, models."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import KEY
from tests.support.clients.anthropic_client import anthropic_client
from tests.support.images import png
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.server import LemonbusServer

if TYPE_CHECKING:
    import anthropic

CHAT, LOOP = "extra.tiny-chat", "extra.tiny-loop"
TOOL, THINK, VISION = "extra.tiny-tool", "extra.tiny-think", "extra.tiny-vision"
HI: Any = [{"role": "user", "content": "Hi"}]
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: Any = [{"name": "get_weather", "description": "Weather", "input_schema": CITY}]


@pytest.fixture
def client(shared_server: LemonbusServer) -> Iterator[anthropic.Anthropic]:
    with anthropic_client(shared_server) as client:
        yield client


def picture() -> dict[str, Any]:
    data = base64.b64encode(png(8, 8)).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


def test_a_message(client: anthropic.Anthropic) -> None:
    message = client.messages.create(model=CHAT, max_tokens=100, system="Be brief.", messages=HI)
    (block,) = message.content
    assert (message.type, message.role, message.model, block.type) == ("message", "assistant", CHAT, "text")
    assert block.text == CHAT_TEXT
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
    assert message.usage.output_tokens == len(CHAT_TEXT.split()) + 1
    assert message.id.startswith("msg_")
    assert message._request_id


def test_a_streamed_message_is_the_whole_one(client: anthropic.Anthropic) -> None:
    with client.messages.stream(model=CHAT, max_tokens=100, messages=HI) as stream:
        text = "".join(stream.text_stream)
        message = stream.get_final_message()
        assert stream.response.headers["request-id"]
    assert text == message.content[0].text == CHAT_TEXT  # type: ignore[union-attr]
    whole = client.messages.create(model=CHAT, max_tokens=100, messages=HI)
    assert message.stop_reason == whole.stop_reason == "end_turn"
    assert message.usage.output_tokens == whole.usage.output_tokens
    totals = [
        each.usage.input_tokens
        + (each.usage.cache_read_input_tokens or 0)
        + (each.usage.cache_creation_input_tokens or 0)
        for each in (message, whole)
    ]
    assert totals[0] == totals[1] > 0


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("more", "reason", "sequence"),
    [
        ({"model": LOOP, "max_tokens": 5}, "max_tokens", None),
        ({"stop_sequences": ["never", "story"]}, "stop_sequence", "story"),
        ({"stop_sequences": ["never"]}, "end_turn", None),
        ({"model": TOOL, "tools": TOOLS}, "tool_use", None),
    ],
)
def test_why_an_answer_ended(
    client: anthropic.Anthropic, more: dict[str, Any], reason: str, sequence: str | None, streamed: bool
) -> None:
    asked: Any = {"model": CHAT, "max_tokens": 100, "messages": HI, **more}
    if streamed:
        with client.messages.stream(**asked) as stream:
            message = stream.get_final_message()
    else:
        message = client.messages.create(**asked)
    assert (message.stop_reason, message.stop_sequence) == (reason, sequence)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_round_trip_of_a_tool(client: anthropic.Anthropic, streamed: bool) -> None:
    asked: Any = {"model": TOOL, "max_tokens": 100, "messages": HI, "tools": TOOLS}
    if streamed:
        with client.messages.stream(**asked) as stream:
            message = stream.get_final_message()
    else:
        message = client.messages.create(**asked)
    (call,) = message.content
    assert call.type == "tool_use"
    assert (call.name, call.input) == ("get_weather", {"city": "Paris"})
    result: Any = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
    turns: Any = [*HI, {"role": "assistant", "content": message.content}, {"role": "user", "content": [result]}]
    answer = client.messages.create(model=THINK, max_tokens=100, messages=turns, tools=TOOLS)
    assert [block.type for block in answer.content] == ["thinking", "text"]


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "get_weather"}, {"type": "auto"}])
def test_choices_of_tools(client: anthropic.Anthropic, choice: Any) -> None:
    other: Any = {"name": "other", "input_schema": {"type": "object"}}
    message = client.messages.create(
        model=TOOL,
        max_tokens=100,
        messages=HI,
        tools=[other, *TOOLS],
        tool_choice={**choice, "disable_parallel_tool_use": True},
    )
    assert [block.name for block in message.content if block.type == "tool_use"] == ["get_weather"]


def test_tools_of_a_coding_agent(client: anthropic.Anthropic) -> None:
    script = {"type": "string", "maxLength": 524_288}
    run_id = {"type": "string", "pattern": "^wf_[a-z0-9-]{6,}$"}
    workflow = {"type": "object", "properties": {"script": script, "id": run_id}, "additionalProperties": False}
    tools: Any = [*TOOLS, {"name": "Workflow", "description": "Runs a script", "input_schema": workflow}]
    message = client.messages.create(model=TOOL, max_tokens=100, messages=HI, tools=tools)
    assert [block.name for block in message.content if block.type == "tool_use"][:1] == ["get_weather"]


def test_thinking(client: anthropic.Anthropic) -> None:
    with client.messages.stream(model=THINK, max_tokens=100, messages=HI) as stream:
        thoughts = "".join(event.thinking for event in stream if event.type == "thinking")
        streamed = stream.get_final_message()
    message = client.messages.create(model=THINK, max_tokens=100, messages=HI)
    for each in (message, streamed):
        thinking, text = each.content
        assert (thinking.type, text.type) == ("thinking", "text")
        assert thinking.thinking == thoughts == "The user asks for a number.\n"
        assert text.text == "Forty two."
    brief = client.messages.create(
        model=THINK, max_tokens=100, messages=HI, thinking={"type": "enabled", "budget_tokens": 2}
    )
    assert brief.content[0].type == "thinking"
    assert len(brief.content[0].thinking) < len(thoughts)


@pytest.mark.parametrize("one", [False, True])
def test_a_choice_of_one_tool_leaves_no_other(client: anthropic.Anthropic, one: bool) -> None:
    """The model only knows one call. It is made to call another tool, and does not know when to stop."""
    other: Any = {"name": "other", "input_schema": {"type": "object", "properties": {}, "additionalProperties": False}}
    message = client.messages.create(
        model=TOOL,
        max_tokens=200,
        messages=HI,
        tools=[other, *TOOLS],
        tool_choice={"type": "tool", "name": "other", "disable_parallel_tool_use": one},
        extra_body={"temperature": 0},
    )
    calls = [block.name for block in message.content if block.type == "tool_use"]
    assert set(calls) == {"other"}
    assert (len(calls) == 1) == one


def test_an_image(client: anthropic.Anthropic) -> None:
    content: Any = [picture(), {"type": "text", "text": "What is it?"}]
    without = client.messages.create(model=VISION, max_tokens=5, messages=[{"role": "user", "content": "What is it?"}])
    message = client.messages.create(model=VISION, max_tokens=5, messages=[{"role": "user", "content": content}])
    assert message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0) >= 16 + (
        without.usage.input_tokens + (without.usage.cache_read_input_tokens or 0)
    )


@pytest.mark.parametrize("model", [CHAT, TOOL, THINK])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"system": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}]},
        {"tools": TOOLS},
        {"tools": TOOLS, "tool_choice": {"type": "none"}},
        {"messages": [*HI, {"role": "assistant", "content": "Well"}, {"role": "user", "content": "Go on <|im_end|>"}]},
    ],
)
def test_a_count_is_what_the_message_uses(client: anthropic.Anthropic, model: str, more: dict[str, Any]) -> None:
    asked: Any = {"model": model, "messages": HI, **more}
    counted = client.messages.count_tokens(**asked)
    usage = client.messages.create(**asked, max_tokens=1).usage
    assert counted.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)


def test_a_count_with_an_image(client: anthropic.Anthropic) -> None:
    messages: Any = [{"role": "user", "content": [picture(), {"type": "text", "text": "What is it?"}]}]
    counted = client.messages.count_tokens(model=VISION, messages=messages)
    usage = client.messages.create(model=VISION, max_tokens=1, messages=messages).usage
    assert counted.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)


@pytest.mark.parametrize("route", ["messages", "messages/count_tokens"])
def test_an_invalid_image(shared_server: LemonbusServer, route: str) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    messages = [{"role": "user", "content": [{"type": "image", "source": source}]}]
    answer = shared_server.client.post(f"/v1/{route}", {"model": VISION, "max_tokens": 1, "messages": messages})
    assert (answer.status, answer.error["type"]) == (400, "invalid_request_error"), answer


def test_errors_are_the_packages_classes(client: anthropic.Anthropic) -> None:
    import anthropic as package  # noqa: PLC0415 - as in anthropic_client

    url: Any = [{"type": "image", "source": {"type": "url", "url": "http://127.0.0.1/a.png"}}]
    with pytest.raises(package.BadRequestError, match="not fetched") as refused:
        client.messages.create(model=CHAT, max_tokens=5, messages=[{"role": "user", "content": url}])
    with pytest.raises(package.NotFoundError) as unknown:
        client.messages.create(model="no-such-model", max_tokens=5, messages=HI)
    with pytest.raises(package.NotFoundError) as batch:
        client.messages.batches.retrieve("msgbatch_none")
    with pytest.raises(package.NotFoundError) as model:
        client.models.retrieve("no-such-model")
    with pytest.raises(package.BadRequestError) as long:
        client.messages.create(model=CHAT, max_tokens=5, messages=[{"role": "user", "content": "word " * 20_000}])
    kinds = ["invalid_request_error", *["not_found_error"] * 3, "invalid_request_error"]
    for caught, kind in zip((refused, unknown, batch, model, long), kinds, strict=True):
        body: Any = caught.value.body
        assert (body["type"], body["error"]["type"]) == ("error", kind)
        assert body["request_id"] == caught.value.request_id


def test_a_missing_key(keyed_server: LemonbusServer) -> None:
    import anthropic as package  # noqa: PLC0415 - as in anthropic_client

    with anthropic_client(keyed_server) as client, pytest.raises(package.AuthenticationError) as caught:
        client.messages.create(model=CHAT, max_tokens=5, messages=HI)
    assert caught.value.request_id
    with anthropic_client(keyed_server).with_options(api_key=KEY) as client:
        assert client.messages.create(model=CHAT, max_tokens=5, messages=HI).content


@pytest.mark.parametrize("prefix", ["", "/api"])
def test_prefixes(shared_server: LemonbusServer, prefix: str) -> None:
    with anthropic_client(shared_server, prefix) as client:
        assert client.messages.create(model=CHAT, max_tokens=5, messages=HI).content


def test_models(client: anthropic.Anthropic) -> None:
    ids = [model.id for model in client.models.list(limit=2)]  # page after page
    assert CHAT in ids
    assert len(ids) == len(set(ids)) > 2
    model = client.models.retrieve(CHAT)
    assert (model.id, model.display_name, model.type, model.lifecycle) == (CHAT, CHAT, "model", "active")
    assert model.created_at.tzinfo is not None
