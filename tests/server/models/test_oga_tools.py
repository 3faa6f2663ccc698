"""Tools, forms of answers and several choices of ONNX Runtime GenAI in the whole server, in every dialect."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.clients.anthropic_client import anthropic_client
from tests.support.clients.ollama_client import ollama_client
from tests.support.clients.openai_client import openai_client
from tests.support.models.genai_models import write_genai_model
from tests.support.server import LemonbusServer

MODEL = "extra.tiny-oga-hermes"
HI: Any = [{"role": "user", "content": "Weather?"}]
CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
FUNCTION: dict[str, Any] = {"name": "get_weather", "description": "Weather", "parameters": CITY}
TOOLS: Any = [{"type": "function", "function": FUNCTION}]
PARIS = {"city": "Paris"}


@pytest.fixture(scope="module")
def server(shared_server: LemonbusServer) -> Iterator[LemonbusServer]:
    """The shared server, which also has this model while the fixture lasts."""
    folder = write_genai_model(shared_server.models, MODEL.removeprefix("extra."))
    yield shared_server
    shared_server.client.post("/v1/unload", {"model_name": MODEL})
    shutil.rmtree(folder)


@pytest.mark.parametrize("streamed", [False, True])
def test_openais_chats(server: LemonbusServer, streamed: bool) -> None:
    with openai_client(server) as client:
        asked: dict[str, Any] = {"model": MODEL, "messages": HI, "tools": TOOLS, "temperature": 0}
        if streamed:
            with client.chat.completions.stream(**asked) as stream:
                answer: Any = stream.get_final_completion()
        else:
            answer = client.chat.completions.create(**asked)
        (choice,) = answer.choices
        (call,) = choice.message.tool_calls
        assert (choice.finish_reason, call.function.name) == ("tool_calls", "get_weather")
        assert json.loads(call.function.arguments) == PARIS
        assert not choice.message.content
        assistant_message: Any = {"role": "assistant", "tool_calls": [{**call.to_dict(), "type": "function"}]}
        result: Any = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
        after: Any = client.chat.completions.create(model=MODEL, messages=[*HI, assistant_message, result], tools=TOOLS)
        before: Any = client.chat.completions.create(model=MODEL, messages=HI, tools=TOOLS)
        assert after.usage.prompt_tokens > before.usage.prompt_tokens


def test_responses(server: LemonbusServer) -> None:
    tools: Any = [{"type": "function", **FUNCTION, "strict": True}]
    with openai_client(server) as client:
        with client.responses.stream(model=MODEL, input="Weather?", tools=tools, temperature=0) as stream:
            arguments = [event.delta for event in stream if event.type == "response.function_call_arguments.delta"]
            response: Any = stream.get_final_response()
        assert json.loads("".join(arguments)) == PARIS
        (call,) = response.output
        output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
        after: Any = client.responses.create(
            model=MODEL, input=[output], previous_response_id=response.id, tools=tools, tool_choice="required"
        )
        assert {each.type for each in after.output} == {"function_call"}
        assert after.usage.input_tokens > response.usage.input_tokens
        text: Any = {"format": {"type": "json_schema", "name": "city", "strict": True, "schema": CITY}}
        assert json.loads(client.responses.create(model=MODEL, input="hi", text=text).output_text)["city"]


@pytest.mark.parametrize("choice", [{"type": "auto"}, {"type": "tool", "name": "get_weather"}])
def test_anthropics_messages(server: LemonbusServer, choice: dict[str, str]) -> None:
    tools: Any = [{"name": "get_weather", "description": "Weather", "input_schema": CITY}]
    asked: Any = {"model": MODEL, "max_tokens": 100, "messages": HI, "tools": tools, "tool_choice": choice}
    asked["extra_body"] = {"temperature": 0}
    with anthropic_client(server) as client:
        with client.messages.stream(**asked) as stream:
            message = stream.get_final_message()
        (call,) = message.content
        assert call.type == "tool_use"
        assert (message.stop_reason, call.name, call.input) == ("tool_use", "get_weather", PARIS)
        result: Any = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
        turns = [*HI, {"role": "assistant", "content": message.content}, {"role": "user", "content": [result]}]
        answer = client.messages.create(**{**asked, "messages": turns})
        assert answer.stop_reason == "tool_use"
        counted = client.messages.count_tokens(
            model=MODEL, messages=turns, tools=tools, tool_choice=asked["tool_choice"]
        )
        assert counted.input_tokens == answer.usage.input_tokens + (answer.usage.cache_read_input_tokens or 0)


@pytest.mark.parametrize("stream", [False, True])
def test_ollamas_chat(server: LemonbusServer, stream: bool) -> None:
    client = ollama_client(server)
    try:
        answers: Any = client.chat(model=MODEL, messages=HI, tools=TOOLS, stream=stream, options={"temperature": 0})
        answers = list(answers) if stream else [answers]
        (call,) = [call for answer in answers for call in answer.message.tool_calls or []]
        assert (call.function.name, call.function.arguments) == ("get_weather", PARIS)
        assistant_message = {"role": "assistant", "content": "", "tool_calls": [call]}
        turns: Any = [*HI, assistant_message, {"role": "tool", "tool_name": "get_weather", "content": "sunny"}]
        assert client.chat(model=MODEL, messages=turns, tools=TOOLS).prompt_eval_count
        shaped = client.chat(model=MODEL, messages=HI, format=CITY)
        assert json.loads(shaped.message.content or "")["city"] in ("Paris", "Rome")
    finally:
        client.close()


@pytest.mark.parametrize("stream", [False, True])
def test_several_choices_and_prompts_are_counted(server: LemonbusServer, stream: bool) -> None:
    def counted(route: str, body: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        options = {"include_usage": True} if stream else None
        asked = {"model": MODEL, "temperature": 0, "stream": stream, "stream_options": options, **body}
        answer = server.client.post(f"/v1/{route}", asked)
        assert answer.status == 200, answer
        documents = answer.chunks if stream else [answer.json()]
        (usage,) = [each["usage"] for each in documents if each.get("usage")]
        return usage, sorted({choice["index"] for each in documents for choice in each["choices"]})

    one, _ = counted("chat/completions", {"messages": HI})
    three, indices = counted("chat/completions", {"messages": HI, "n": 3})
    assert indices == [0, 1, 2]
    assert three["completion_tokens"] == 3 * one["completion_tokens"]
    assert three["prompt_tokens"] == one["prompt_tokens"]
    with_logprobs, _ = counted("chat/completions", {"messages": HI, "n": 3, "logprobs": True})
    assert with_logprobs["completion_tokens"] == three["completion_tokens"]
    several, indices = counted("completions", {"prompt": ["a", "bcd", [5, 6]], "n": 2, "max_tokens": 3})
    assert indices == [0, 1, 2, 3, 4, 5]
    assert (several["completion_tokens"], several["prompt_tokens"]) == (18, 6)
    assert server.client.get("/v1/stats").json()["output_tokens"] == 18


@pytest.mark.parametrize(
    ("body", "param", "expected"),
    [
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"not": {}}}}}, "response_format", "Unimplemented keys"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "no"}}}, "tool_choice", "`tools`"),
        ({"tool_choice": "required"}, "tool_choice", "`tools`"),
    ],
)  # fmt: skip
def test_refusals_name_the_field(server: LemonbusServer, body: dict[str, Any], param: str, expected: str) -> None:
    error = server.client.chat(MODEL, **body)
    assert (error.status, error.error["param"]) == (400, param), error
    assert expected in error.error["message"]


def test_more_completions_than_the_engine_takes_at_once(server: LemonbusServer) -> None:
    body = {"model": MODEL, "prompt": ["a"] * 3, "n": 64, "max_tokens": 1}
    answer = server.client.post("/v1/completions", body).json()
    assert [each["index"] for each in answer["choices"]] == list(range(192))
