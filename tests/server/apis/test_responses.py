"""The Responses API through the unmodified ``openai`` package, against a real llama.cpp."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import processes
from tests.support.clients.http_client import engine_client
from tests.support.clients.openai_client import openai_client
from tests.support.images import png
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    import openai

CHAT, LOOP, TOOL, THINK, VISION = (f"extra.tiny-{name}" for name in ("chat", "loop", "tool", "think", "vision"))
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
PICTURE = "data:image/png;base64," + base64.b64encode(png(8, 8)).decode()
TOOLS: list[Any] = [{"type": "function", "name": "get_weather", "parameters": CITY, "strict": True}]


@pytest.fixture
def client(shared_server: LemonbusServer) -> Iterator[openai.OpenAI]:
    with openai_client(shared_server) as made:
        yield made


@pytest.mark.parametrize("prefix", ["/v1", "/api/v1", "/v0", "/api/v0"])
def test_a_whole_response(shared_server: LemonbusServer, prefix: str) -> None:
    with openai_client(shared_server, prefix) as client:
        response = client.responses.create(model=CHAT, input="hi", metadata={"for": "a test"}, temperature=0)
    assert (response.output_text, response.status, response.model) == (CHAT_TEXT, "completed", CHAT)
    assert response.metadata == {"for": "a test"}
    assert response.usage is not None
    assert response.usage.output_tokens == 21, "the end token counts"
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens


def test_a_stream(client: openai.OpenAI) -> None:
    with client.responses.stream(model=THINK, input="hi") as stream:
        events = list(stream)
        response = stream.get_final_response()
    types = [event.type for event in events]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert types[:3] == ["response.created", "response.in_progress", "response.output_item.added"]
    assert types[-2:] == ["response.output_item.done", "response.completed"]
    assert response.output_text == "Forty two."
    assert [item.type for item in response.output] == ["reasoning", "message"]
    assert response.usage is not None
    assert 0 < response.usage.output_tokens_details.reasoning_tokens < response.usage.output_tokens
    stored = client.responses.retrieve(response.id)
    assert (stored.output_text, stored.usage, stored.status) == (response.output_text, response.usage, "completed")


def test_a_response_that_is_cut_off(client: openai.OpenAI) -> None:
    response = client.responses.create(model=LOOP, input="hi", max_output_tokens=5)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.output_text == " Once a very small model"
    events = list(client.responses.create(model=LOOP, input="hi", max_output_tokens=5, stream=True))
    assert events[-1].type == "response.incomplete"


@pytest.mark.parametrize("streamed", [False, True])
def test_a_tools_round_trip(client: openai.OpenAI, streamed: bool) -> None:
    if streamed:
        with client.responses.stream(model=TOOL, input="Weather?", tools=TOOLS) as stream:
            arguments = [event.delta for event in stream if event.type == "response.function_call_arguments.delta"]
            response: Any = stream.get_final_response()
        assert json.loads("".join(arguments)) == {"city": "Paris"}
    else:
        response = client.responses.create(model=TOOL, input="Weather?", tools=TOOLS)
    (call,) = response.output
    assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "get_weather", {"city": "Paris"})
    output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    by_reference = client.responses.create(model=CHAT, input=[output], previous_response_id=response.id, tools=TOOLS)
    by_value = client.responses.create(
        model=CHAT,
        input=[{"role": "user", "content": "Weather?"}, call.to_dict(), output],
        tools=TOOLS,
    )
    assert by_reference.usage is not None
    assert by_value.usage is not None
    assert by_reference.usage.input_tokens == by_value.usage.input_tokens


def test_items_by_reference(client: openai.OpenAI) -> None:
    """The AI SDK sends references to items that it knows to be stored, and names no previous response."""
    first: Any = client.responses.create(model=TOOL, input="Weather?", tools=TOOLS)
    (call,) = first.output
    output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    question: Any = {"role": "user", "content": "Weather?"}
    reference: Any = {"type": "item_reference", "id": call.id}
    usages = [
        client.responses.create(model=CHAT, input=[question, each, output]).usage
        for each in (reference, call.to_dict())
    ]
    assert usages[0] is not None
    assert usages[1] is not None
    assert usages[0].input_tokens == usages[1].input_tokens


def test_a_json_schema(client: openai.OpenAI) -> None:
    only = {"type": "object", "properties": {"answer": {"enum": ["yes"]}}, "required": ["answer"]}
    text: Any = {"format": {"type": "json_schema", "name": "only", "strict": True, "schema": only}}
    response = client.responses.create(model=CHAT, input="hi", text=text, max_output_tokens=60)
    assert json.loads(response.output_text) == {"answer": "yes"}


def test_log_probabilities(client: openai.OpenAI) -> None:
    include: Any = ["message.output_text.logprobs"]
    response: Any = client.responses.create(
        model=LOOP, input="hi", include=include, top_logprobs=2, max_output_tokens=3, temperature=0
    )
    logprobs = response.output[0].content[0].logprobs
    assert [each.token for each in logprobs] == [" Once", " a", " very"]
    assert all(len(each.top_logprobs) == 2 for each in logprobs)
    without: Any = client.responses.create(model=LOOP, input="hi", include=include, max_output_tokens=3, temperature=0)
    chosen = without.output[0].content[0].logprobs
    assert [(each.token, each.top_logprobs) for each in chosen] == [(" Once", []), (" a", []), (" very", [])]
    events: Any = client.responses.create(
        model=LOOP, input="hi", include=include, top_logprobs=2, max_output_tokens=3, temperature=0, stream=True
    )
    deltas = [each for event in events if event.type == "response.output_text.delta" for each in event.logprobs]
    assert [each.token for each in deltas] == [" Once", " a", " very"]


def test_a_picture_and_a_file(client: openai.OpenAI) -> None:
    def tokens(*parts: Any) -> int:
        content: Any = [{"type": "input_text", "text": "What is it?"}, *parts]
        response = client.responses.create(model=VISION, input=[{"role": "user", "content": content}])
        assert response.output_text == CHAT_TEXT
        assert response.usage is not None
        return response.usage.input_tokens

    plain = tokens()
    assert tokens({"type": "input_image", "detail": "auto", "image_url": PICTURE}) >= plain + 16
    file = {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,aGVsbG8="}
    assert tokens(file) > plain


def test_truncation(client: openai.OpenAI) -> None:
    import openai  # noqa: PLC0415 - that takes most of a second in every test process

    long: Any = [{"role": "user", "content": "word " * 9000}, {"role": "user", "content": "hi"}]
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model=CHAT, input=long)
    assert refused.value.code == "context_length_exceeded"
    assert client.responses.create(model=CHAT, input=long, truncation="auto").output_text == CHAT_TEXT


def test_stored_responses(client: openai.OpenAI) -> None:
    import openai  # noqa: PLC0415 - see above

    first = client.responses.create(model=CHAT, input="hi", instructions="Be short.")
    second = client.responses.create(model=CHAT, input="go on", previous_response_id=first.id)
    assert client.responses.retrieve(first.id).to_dict() == first.to_dict()
    items: list[Any] = list(client.responses.input_items.list(second.id, order="asc", limit=2))
    assert [item.role for item in items] == ["user", "assistant", "user"], "the pages of both turns"
    assert [item.id for item in client.responses.input_items.list(second.id)] == [item.id for item in items[::-1]]

    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    assert len(list(client.responses.input_items.list(second.id))) == 3, "what continues it keeps its conversation"
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model=CHAT, input="x", previous_response_id=first.id)
    assert refused.value.param == "previous_response_id"
    unstored = client.responses.create(model=CHAT, input="hi", store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(unstored.id)


def test_another_gateway_process_knows_the_conversation(shared_server: LemonbusServer) -> None:
    server, before = shared_server, len(shared_server.lines)

    def gateways() -> list[int]:
        return [peer["pid"] for peer in server.state()["processes"] if peer["role"] == "gateway"]

    wait_for(lambda: len(gateways()) == 2, "both gateways have said Hello")
    one, other = gateways()

    def ask(stopped: int, **fields: Any) -> Any:
        with processes.stopped(stopped):
            answer = server.client.post("/v1/responses", {"model": CHAT, "input": "hi", **fields})
        assert answer.status == 200, answer
        return answer.json()

    first = ask(one)
    second = ask(other, previous_response_id=first["id"])
    third = ask(one, previous_response_id=second["id"])
    tokens = [each["usage"]["input_tokens"] for each in (first, second, third)]
    assert tokens[0] < tokens[1] < tokens[2]

    def served_by() -> set[int]:
        return {line["pid"] for line in server.lines[before:] if line.get("path") == "/v1/responses"}

    wait_for(lambda: served_by() == {one, other}, "both have served a part of the conversation")


def test_errors_as_the_client_knows_them(client: openai.OpenAI) -> None:
    import openai  # noqa: PLC0415 - see above

    with pytest.raises(openai.NotFoundError) as unknown:
        client.responses.create(model="no-such-model", input="hi")
    assert unknown.value.code == "model_not_found"
    assert unknown.value.request_id
    with pytest.raises(openai.BadRequestError, match="file_search, web_search"):
        client.responses.create(
            model=CHAT, input="hi", tools=[{"type": "web_search"}, {"type": "file_search", "vector_store_ids": ["v"]}]
        )
    with pytest.raises(openai.NotFoundError), client.responses.stream(model="no-such-model", input="hi"):
        pass


OTHERWISE = {"id", "call_id", "encrypted_content"}
"""Fields of an item that differ: ids are random, and llama-server writes an empty text for reasoning that it does not encrypt."""


@pytest.mark.parametrize("model", [CHAT, THINK, TOOL])
def test_the_same_as_llama_servers_own_answer(shared_server: LemonbusServer, model: str) -> None:
    body = {"model": model, "input": "hi", "temperature": 0, "tools": TOOLS if model == TOOL else []}
    ours = shared_server.client.post("/v1/responses", body).json()
    theirs = engine_client(shared_server.engine(model)).post("/v1/responses", body).json()
    assert set(theirs) <= set(ours)
    assert ours["status"] == theirs["status"] == "completed"
    assert [without_ids(item) for item in ours["output"]] == [without_ids(item) for item in theirs["output"]]
    for name in ("input_tokens", "output_tokens", "total_tokens"):
        assert ours["usage"][name] == theirs["usage"][name]


def without_ids(item: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name not in OTHERWISE}
