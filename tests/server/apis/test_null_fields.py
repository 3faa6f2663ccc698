"""A field that is null counts as absent: on every route of the document, for every optional field of the body and of its objects."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.openapi.document import ALIAS_OF
from protocol.wire import form_data
from protocol.wire.form_data import FormPart
from tests.fuzz.fakes import fakes_on_loopback
from tests.fuzz.known_names import MODELS, PICTURE, RECORDING, model_of
from tests.support.clients.http_exchange import HttpExchange
from tests.support.configuration_file import ConfiguredServer
from tests.support.server import LemonbusServer

Json = dict[str, Any]
WEATHER = {"type": "object", "properties": {"city": {"type": "string", "default": None}}}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}}
BARE_TOOL = {"type": "function", "function": {"name": "now"}}
CALL = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
CONVERSATION = [
    {"role": "user", "content": [{"type": "text", "text": "hi"}]},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": "sunny", "tool_call_id": "c1"},
]
SCHEMA_FORMAT = {"type": "json_schema", "json_schema": {"name": "answer", "schema": WEATHER}}
IMAGE = "data:image/png;base64,iVBORw0KGgo="
ANTHROPIC_TURNS = [
    {"role": "user", "content": [{"type": "text", "text": "hi"}]},
    {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "t1", "name": "get_weather", "input": {"city": None}}],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "t1"},
            {"type": "document", "source": {"type": "text", "data": "a text"}},
        ],
    },
]
OLLAMA_CALL = {"function": {"name": "get_weather", "arguments": {"city": None}}}
BODIES: list[tuple[str, Json]] = [
    ("/v1/chat/completions", {"messages": CONVERSATION, "tools": [TOOL, BARE_TOOL]}),
    ("/v1/chat/completions", {"messages": CONVERSATION[:1], "response_format": SCHEMA_FORMAT}),
    ("/v1/apply-template", {"messages": CONVERSATION, "tools": [TOOL]}),
    ("/v1/apply-template", {"messages": CONVERSATION[:1], "response_format": SCHEMA_FORMAT}),
    ("/infill", {"input_prefix": "a", "input_suffix": "b", "input_extra": [{"text": "c"}]}),
    (
        "/v1/messages",
        {
            "messages": ANTHROPIC_TURNS,
            "tools": [{"name": "get_weather", "input_schema": WEATHER}],
            "tool_choice": {"type": "auto"},
            "thinking": {"type": "disabled"},
            "metadata": {},
            "max_tokens": 4,
        },
    ),
    (
        "/v1/messages",
        {
            "messages": ANTHROPIC_TURNS[:1],
            "max_tokens": 4,
            "output_config": {"format": {"type": "json_schema", "schema": WEATHER}},
        },
    ),
    (
        "/api/chat",
        {
            "messages": [{"role": "assistant", "tool_calls": [OLLAMA_CALL]}, {"role": "user", "content": "hi"}],
            "tools": [TOOL, {"function": {"name": "now"}}],
            "options": {},
        },
    ),
    ("/api/embed", {"input": "a", "options": {}}),
    ("/api/embeddings", {"prompt": "a", "options": {}}),
    ("/v1/text-to-speech/{voice}", {"text": "hello", "model_id": "extra.tiny-kokoro", "voice_settings": {}}),
    (
        "/v1/responses",
        {
            "input": [
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "so"}], "status": None},
                {"type": "function_call", "call_id": "c", "name": "get_weather", "arguments": "{}", "namespace": None},
                {"type": "function_call_output", "call_id": "c", "output": "sunny", "status": None, "id": None},
            ],
            "tools": [
                {"type": "function", "name": "get_weather", "parameters": WEATHER, "description": None, "strict": None},
                {"type": "function", "name": "now", "parameters": None},
                {"type": "custom", "name": "free", "description": None, "format": None},
            ],
            "text": {"format": {"type": "text"}},
            "reasoning": {},
        },
    ),
    (
        "/v1/responses",
        {
            "input": "hi",
            "tools": [{"type": "function", "name": "now"}],
            "tool_choice": {"type": "function", "name": "now"},
        },
    ),
]
"""Bodies with objects that the document's examples do not have."""
VOLATILE = frozenset(
    {
        *("id", "created", "created_at", "completed_at", "request_id", "item_id"),
        *("timings", "usage", "tokens_per_second", "context_length", "max_context_window"),
        *("content", "arguments", "call_id", "finish_reason", "stop_reason", "unloaded"),
    }
)
"""Fields that differ between two answers to one request: names, times, random choices, and whether something was already loaded or read."""
FILES = {"file": RECORDING, "image": PICTURE}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LemonbusServer]:
    with (
        fakes_on_loopback(tmp_path_factory.mktemp("hub")) as settings,
        ConfiguredServer(*MODELS, **{**settings, "ctx_size": 2048}) as started,
    ):
        yield started


class Declared:
    """The schemas of the document; ``seen`` are those that a body had an object of."""

    def __init__(self, document: Json) -> None:
        self.document = document
        self.seen: set[str] = set()

    def schema(self, node: Json) -> tuple[str, Json]:
        """Return a schema with its name, if it has one."""
        name = node.get("$ref", "").rpartition("/")[2]
        return (name, self.document["components"]["schemas"][name]) if name else ("", node)

    def alternatives(self, node: Json) -> Iterator[tuple[str, Json]]:
        name, schema = self.schema(node)
        branches = [*schema.get("anyOf", ()), *schema.get("allOf", ())]
        if not branches:
            yield name, schema
        for branch in branches:
            yield from self.alternatives(branch)

    def with_nulls(self, node: Json, value: Any) -> Any:
        """Return a value of a schema with null for every optional field that it and the objects in it do not have."""
        for name, schema in self.alternatives(node):
            if isinstance(value, list) and "items" in schema:
                value = [self.with_nulls(schema["items"], each) for each in value]
            if isinstance(value, dict) and _describes(schema, value):
                self.seen.add(name)
                fields = schema["properties"]
                absent = fields.keys() - value.keys() - set(schema.get("required", ()))
                filled = {
                    key: self.with_nulls(fields[key], each) if key in fields else each for key, each in value.items()
                }
                value = {**filled, **dict.fromkeys(sorted(absent))}
        return value

    def names_in(self, node: Any) -> set[str]:
        """Return the names of the schemas with optional fields that a schema is made of."""
        found: set[str] = set()
        left = [node]
        while left:
            part = left.pop()
            if isinstance(part, dict) and "$ref" in part:
                name, schema = self.schema(part)
                if name not in found:
                    found.add(name)
                    left.append(schema)
            elif isinstance(part, dict | list):
                left.extend(part.values() if isinstance(part, dict) else part)
        schemas = self.document["components"]["schemas"]
        return {
            name
            for name in found
            if schemas[name].get("properties", {}).keys() - set(schemas[name].get("required", ()))
        }


def _describes(schema: Json, value: Json) -> bool:
    """Return whether an object has the required fields of a schema, and its tag."""
    fields = schema.get("properties")
    tags = {
        key: field["enum"] for key, field in (fields or {}).items() if key == "type" and len(field.get("enum", ())) == 1
    }
    return (
        fields is not None
        and set(schema.get("required", ())) <= value.keys()
        and all(value.get(key) in allowed for key, allowed in tags.items())
    )


def operations(document: Json) -> Iterator[tuple[str, str, str, Json]]:
    """Yield method, path, media type and content of every operation with a body."""
    for path, item in document["paths"].items():
        for method, operation in item.items() if ALIAS_OF not in item else ():
            for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
                yield method.upper(), path, media_type, content


def ask(server: LemonbusServer, method: str, path: str, media_type: str, body: Json) -> HttpExchange:
    path = path.replace("{slot_id}", "0?action=erase&model=extra.tiny-chat").replace("{voice}", "af_heart")
    if media_type == form_data.MEDIA_TYPE:
        texts = [
            FormPart(name, b"null" if text is None else str(text).encode())
            for name, text in body.items()
            if name not in FILES
        ]
        files = [FormPart(name, data, f"{name}.bin") for name, data in FILES.items() if name in body]
        return _send_form(server, path, [*texts, *files])
    return server.client.start(method, path, body).finish()


def _send_form(server: LemonbusServer, path: str, parts: list[FormPart]) -> HttpExchange:
    data = form_data.encode(parts)
    boundary = data.partition(b"\r\n")[0].removeprefix(b"--").decode()
    return server.client.post(path, data, Content_Type=f"{form_data.MEDIA_TYPE}; boundary={boundary}")


def batch_of_one_line(server: LemonbusServer) -> Json:
    """Return the body of a batch; its file is on the server."""
    line = b'{"custom_id": "1", "method": "POST", "url": "/v1/embeddings", "body": {"input": "a", "model": "extra.tiny-embed"}}'
    uploaded = _send_form(server, "/v1/files", [FormPart("purpose", b"batch"), FormPart("file", line, "lines.jsonl")])
    return {
        "input_file_id": uploaded.json()["id"],
        "endpoint": "/v1/embeddings",
        "output_expires_after": {"anchor": "created_at", "seconds": 3600},
    }


def shape(value: Any) -> Any:
    """Return the part of an answer that is the same in two answers to one request: everything except names and figures."""
    if isinstance(value, dict):
        return {key: shape(each) for key, each in value.items() if key not in VOLATILE}
    if isinstance(value, list):
        return [shape(each) for each in value]
    return type(value).__name__ if isinstance(value, int | float) else value


def outcome(exchange: HttpExchange) -> tuple[Any, ...]:
    media_type = exchange.headers.get("content-type", "").partition(";")[0]
    whole = media_type == "application/json" and exchange.body
    return exchange.status, media_type, shape(exchange.json()) if whole else None


def known_body(path: str, method: str, example: Json) -> Json:
    """Return an example with a short answer and a model that the server has, unless the first request would remove that model."""
    body = dict(example)
    name = "no-such-model" if path.endswith(("delete", "unload")) else model_of(path, method, random.Random(1))
    for field in ("model", "model_id", "model_name", "alias", "name", "source"):
        if field in body:
            body[field] = name
    if "input_prefix" in body:
        body["model"] = name
    for field in ("max_tokens", "max_output_tokens", "n_predict"):
        if field in body:
            body[field] = 4
    return body


def test_null_is_absence_on_every_route(server: LemonbusServer) -> None:
    document = server.client.get("/openapi.json").json()
    declared = Declared(document)
    wrong: dict[tuple[str, str], Any] = {}
    compared = 0
    reachable: set[str] = set()
    bodies = [*BODIES, ("/v1/batches", batch_of_one_line(server))]
    for method, path, media_type, content in operations(document):
        reachable |= declared.names_in(content["schema"])
        examples = [known_body(path, method, each["value"]) for each in content.get("examples", {}).values()]
        name = model_of(path, method, random.Random(1))
        more = [{**body, "model": name} for where, body in bodies if where == path]
        for body in [*(examples or [{}]), *more]:
            nulled = declared.with_nulls(content["schema"], body)
            if nulled == body:
                continue
            bare = outcome(ask(server, method, path, media_type, body))
            assert bare[0] == 200 or body not in more, (path, bare, body)
            compared += 1
            got = ask(server, method, path, media_type, nulled)
            if outcome(got) != bare:
                wrong[method, path] = (bare, outcome(got), nulled)
    assert not wrong, "\n".join(map(str, wrong.items()))
    assert compared > 40
    missing = sorted(reachable - declared.seen)
    assert not missing, f"{missing}: objects with optional fields that no body of this test has"
