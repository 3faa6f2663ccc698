"""Tools in our server for ONNX Runtime GenAI: models that call in the forms of common families, and prompts as they read them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients.http_client import RawHttpClient
from tests.support.clients.http_exchange import HttpExchange
from tests.support.models.genai_models import TOOL_MODELS, write_genai_model
from tests.workers.engine_servers.oga_server.oga_process import oga_server
from workers.engine_servers.http_server import EngineHttpError
from workers.engine_servers.oga_server.chat_prompt import template_input
from workers.tool_calls.formats import HERMES, LLAMA_3, MISTRAL, PHI_4_MINI, ToolCallFormat

HI: list[Any] = [{"role": "user", "content": "hi"}]
CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"$ref": "#/$defs/city"}},
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
}
WEATHER: dict[str, Any] = {"type": "function", "function": {"name": "get_weather", "parameters": CITY}}
NOW: dict[str, Any] = {
    "type": "function",
    "function": {"name": "now", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}},
}
TOOLS = [WEATHER, NOW]
CALL: dict[str, Any] = {
    "id": "call_0123456789",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
}
RESULT = {"role": "tool", "tool_call_id": CALL["id"], "content": "sunny"}


@pytest.fixture(scope="module", params=TOOL_MODELS)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawHttpClient]:
    with oga_server(write_genai_model(tmp_path_factory.mktemp("oga"), request.param)) as (client, _):
        yield client


def chat(engine: RawHttpClient, **fields: Any) -> HttpExchange:
    answer = engine.post(
        "/v1/chat/completions", {"messages": HI, "tools": TOOLS, "temperature": 0, "max_tokens": 150, **fields}
    )
    assert answer.status == 200, answer
    return answer


def calls_of(answer: HttpExchange) -> list[tuple[str, str]]:
    (choice,) = answer.json()["choices"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", "")
    calls = choice["message"]["tool_calls"]
    assert len({call["id"] for call in calls}) == len(calls)
    assert {call["type"] for call in calls} == {"function"}
    return [(call["function"]["name"], call["function"]["arguments"]) for call in calls]


def test_a_call_is_found_in_a_whole_answer_and_in_a_stream(engine: RawHttpClient) -> None:
    assert calls_of(chat(engine)) == [("get_weather", '{"city": "Paris"}')]
    stream = chat(engine, stream=True)
    deltas = [chunk["choices"][0]["delta"] for chunk in stream.chunks]
    assert (stream.done, stream.chunks[-1]["choices"][0]["finish_reason"]) == (True, "tool_calls")
    pieces = [piece for delta in deltas for piece in delta.get("tool_calls", [])]
    assert (pieces[0]["id"][:5], pieces[0]["type"], pieces[0]["function"]["name"]) == (
        "call_",
        "function",
        "get_weather",
    )
    assert [piece["index"] for piece in pieces] == [0] * len(pieces)
    assert len(pieces) > 2, "the arguments come as the model writes them"
    assert "".join(piece["function"]["arguments"] for piece in pieces) == '{"city": "Paris"}'
    assert not any(delta.get("content") for delta in deltas), "no part of a marker is shown"


def test_choices_of_tools(engine: RawHttpClient) -> None:
    assert calls_of(chat(engine, tool_choice="required", parallel_tool_calls=False)) == [
        ("get_weather", '{"city": "Paris"}')
    ]
    named = {"type": "function", "function": {"name": "now"}}
    assert calls_of(chat(engine, tool_choice=named)) == [("now", "{}")]
    only = {"tools": [NOW], "tool_choice": "auto"}
    for fields in ({"tool_choice": "none"}, only, {"tools": []}):
        (choice,) = chat(engine, **fields).json()["choices"]
        assert choice["finish_reason"] == "stop"
        assert "get_weather" in choice["message"]["content"], "what is not a call of an offered tool is text"
    unknown = {"type": "function", "function": {"name": "no"}}
    refused = engine.post("/v1/chat/completions", {"messages": HI, "tools": TOOLS, "tool_choice": unknown})
    assert (refused.status, "Field 'tool_choice'" in refused.error["message"]) == (400, True)


def test_a_call_that_is_cut_off_is_sent_up_to_where_it_ended(engine: RawHttpClient) -> None:
    tokens = chat(engine).json()["usage"]["completion_tokens"]
    (choice,) = chat(engine, max_tokens=tokens - 2).json()["choices"]
    assert choice["finish_reason"] == "length"
    (call,) = choice["message"]["tool_calls"]
    assert '{"city": "Paris"}'.startswith(call["function"]["arguments"])


def test_results_and_several_choices(engine: RawHttpClient) -> None:
    """Each template refuses or drops unsuitable messages, so the prompt with a result must be longer by the call and the text."""
    plain = chat(engine).json()["usage"]["prompt_tokens"]
    messages = [*HI, {"role": "assistant", "content": None, "tool_calls": [CALL]}, RESULT]
    answer = chat(engine, messages=messages, n=2).json()
    assert [choice["message"]["tool_calls"][0]["function"]["name"] for choice in answer["choices"]] == [
        "get_weather"
    ] * 2
    ids = {choice["message"]["tool_calls"][0]["id"] for choice in answer["choices"]}
    assert len(ids) == 2
    if (
        engine.get("/v1/models").json()["data"][0]["id"] != "tiny-oga-mistral"
    ):  # it only shows tools in the last message
        assert answer["usage"]["prompt_tokens"] > plain + len('{"city": "Paris"}') + len("sunny")


def test_a_schema_beside_tools_allows_both(engine: RawHttpClient) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY}}
    fields = {"response_format": wanted, "parallel_tool_calls": False}
    assert calls_of(chat(engine, **fields)) == [("get_weather", '{"city": "Paris"}')]
    (choice,) = chat(engine, **fields, tool_choice="none").json()["choices"]
    assert json.loads(choice["message"]["content"])["city"] in ("Paris", "Rome")


def test_the_prompt_has_the_tools_as_they_were_sent(engine: RawHttpClient) -> None:
    """The library changes quotes and simplifies schemas in some cases. These models have a token for each letter."""
    function = {"name": "get_weather", "description": "It's {'the'} \"weather\".", "parameters": CITY}
    tool, text = {"type": "function", "function": function}, "It's {'a': 'b'}."
    sent = json.dumps(tool)
    prompts = {
        "tiny-oga-hermes": f"<|im_start|>system\n# Tools\n<tools>\n{sent}\n</tools>\nAnswer a call as\n<tool_call>\n"
        '{"name": <name>, "arguments": <object>}\n</tool_call><|im_end|>\n'
        f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n",
        "tiny-oga-phi": f"<|system|><|tool|>[{json.dumps(function)}]<|/tool|><|end|><|user|>{text}<|end|><|assistant|>",
        "tiny-oga-llama": f"Environment: ipython\n{sent}\n<|user|>{text}",
        "tiny-oga-mistral": f"[AVAILABLE_TOOLS][{sent}][/AVAILABLE_TOOLS][INST]{text}[/INST]",
    }
    prompt = prompts[engine.get("/v1/models").json()["data"][0]["id"]]
    for token in ("<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"):
        prompt = prompt.replace(token, "1")
    messages = [{"role": "user", "content": text}]
    counted = engine.post("/v1/chat/completions/input_tokens", {"messages": messages, "tools": [tool]})
    assert counted.json()["input_tokens"] == len(prompt)
    again = engine.post(
        "/v1/chat/completions/input_tokens", {"messages": messages, "tools": [tool], "tool_choice": "none"}
    )
    assert again.json()["input_tokens"] < len(prompt) - len(json.dumps(function)), "no request sees another one's tools"


def rendered(
    form: ToolCallFormat | None, messages: list[Any], tools: list[Any], *, shows_calls: bool = True
) -> tuple[list[Any], Any]:
    given = template_input(messages, tools, form, shows_calls=shows_calls)
    return json.loads(given.messages), given.tools and json.loads(given.tools)


def test_arguments_are_objects_for_a_template() -> None:
    messages, tools = rendered(HERMES, [{"role": "assistant", "tool_calls": [CALL]}, RESULT], TOOLS)
    (call,) = messages[0]["tool_calls"]
    assert call == {**CALL, "function": {"name": "get_weather", "arguments": {"city": "Paris"}}}
    assert (messages[0]["content"], messages[1], tools) == ("", RESULT, TOOLS)


def test_mistrals_ids_have_nine_characters() -> None:
    first, second = rendered(MISTRAL, [{"role": "assistant", "tool_calls": [CALL]}, RESULT], [])[0]
    identity = first["tool_calls"][0]["id"]
    assert (len(identity), identity.isalnum(), second["tool_call_id"]) == (9, True, identity)
    kept = {**CALL, "id": "abcDEF123"}
    assert (
        rendered(MISTRAL, [{"role": "assistant", "tool_calls": [kept]}], [])[0][0]["tool_calls"][0]["id"] == kept["id"]
    )


@pytest.mark.parametrize("system", [[], [{"role": "system", "content": "Be brief."}]])
def test_phis_tools_are_at_the_end_of_the_system_message(system: list[Any]) -> None:
    messages, tools = rendered(PHI_4_MINI, [*system, *HI], [NOW])
    assert (tools, len(messages), messages[0]["role"]) == (None, 2, "system")
    text = system[0]["content"] if system else ""
    assert messages[0]["content"] == f"{text}<|tool|>{json.dumps([NOW['function']])}<|/tool|>"


@pytest.mark.parametrize(
    ("form", "written"),
    [
        (HERMES, 'Wait.<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'),
        (PHI_4_MINI, 'Wait.<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris"}}]<|/tool_call|>'),
        (LLAMA_3, 'Wait.{"name": "get_weather", "parameters": {"city": "Paris"}}'),
    ],
)
def test_calls_are_written_for_a_template_that_does_not_show_them(form: ToolCallFormat, written: str) -> None:
    assistant_message = {"role": "assistant", "content": "Wait.", "tool_calls": [CALL]}
    assert rendered(form, [assistant_message], [], shows_calls=False)[0] == [{"role": "assistant", "content": written}]


@pytest.mark.parametrize("calls", ["f", [1], [{"function": "f"}], [{"function": {"arguments": "{}"}}]])
def test_malformed_calls_of_past_messages_are_refused(calls: Any) -> None:
    with pytest.raises(EngineHttpError, match=r"messages\[0\]\.tool_calls"):
        template_input([{"role": "assistant", "tool_calls": calls}], [], HERMES, shows_calls=True)


def test_variables_of_a_request_reach_its_template_and_no_other(tmp_path: Path) -> None:
    folder = write_genai_model(tmp_path, "tiny-oga")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings["chat_template"] += "{% if enable_thinking is defined and not enable_thinking %}abc{% endif %}"
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    with oga_server(folder) as (client, _):

        def tokens(**fields: Any) -> int:
            answer = client.post("/v1/chat/completions/input_tokens", {"messages": HI, **fields})
            return int(answer.json()["input_tokens"])

        plain = tokens()
        assert tokens(chat_template_kwargs={"enable_thinking": False}) == plain + 3
        assert tokens(chat_template_kwargs={"enable_thinking": True}) == tokens() == plain
