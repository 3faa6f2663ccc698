"""Schemas that the library's guidance would compile for minutes, or into gigabytes: refused before it sees them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.clients.http_client import RawHttpClient
from tests.support.models.genai_models import write_genai_model
from tests.workers.engine_servers.oga_server.oga_process import oga_server
from workers.engine_servers.oga_server.guidance import schema_problem

TEXT: dict[str, Any] = {"type": "string"}


def array(most: float) -> dict[str, Any]:
    return {"type": "array", "items": TEXT, "maxItems": most}


def multiple(of: float) -> dict[str, Any]:
    return {"type": "number", "multipleOf": of}


def patterns(count: int) -> list[dict[str, Any]]:
    return [{"type": "string", "pattern": f"(.*{chr(97 + number)}){{40}}"} for number in range(count)]


def nested(depth: int, inner: dict[str, Any]) -> dict[str, Any]:
    for _ in range(depth):
        inner = {"type": "object", "properties": {"a": inner}}
    return inner


REFUSED = [
    (array(10**9), "maxItems"),
    ({"type": "array", "items": TEXT, "minItems": 1e6}, "minItems"),
    ({"prefixItems": [array(1000)] * 11}, "maxItems"),
    (nested(300, array(10**6)), "maxItems"),
    (multiple(99_999_989), "multipleOf"),
    (multiple(0.99991), "multipleOf"),
    ({"allOf": [multiple(97), multiple(89), multiple(83)]}, "multipleOf"),
    ({"allOf": patterns(26)}, "pattern"),
    ({"$defs": dict(zip("abcdefghi", patterns(9), strict=True)), "$ref": "#/$defs/a"}, "pattern"),
    ({"enum": [f"value {number}" for number in range(10_000)]}, "bytes"),
]
ALLOWED = [
    {},
    array(1000),
    {"type": "array", "items": TEXT, "minItems": -1, "maxItems": "many"},
    {"properties": {"maxItems": {"type": "integer", "multipleOf": 100_000}, "pattern": TEXT}},
    {"properties": {"price": multiple(0.01), "share": multiple(0.25)}},
    multiple(0),
    {"properties": dict(zip("abcdefghi", patterns(9), strict=True))},
    {"enum": [f"value {number}" for number in range(2000)]},
]


@pytest.mark.parametrize(("schema", "word"), REFUSED)
def test_a_schema_that_would_take_minutes_is_refused(schema: dict[str, Any], word: str) -> None:
    assert word in schema_problem([schema])


@pytest.mark.parametrize("schema", ALLOWED)
def test_usual_schemas_are_not(schema: dict[str, Any]) -> None:
    assert not schema_problem([schema])


def test_the_schemas_of_a_request_count_together() -> None:
    assert not schema_problem([array(6000)])
    assert "maxItems" in schema_problem([array(6000), array(6000)])


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawHttpClient]:
    with oga_server(write_genai_model(tmp_path_factory.mktemp("oga"), "tiny-oga-hermes")) as (client, _):
        yield client


def chat(engine: RawHttpClient, **fields: Any) -> tuple[int, str]:
    answer = engine.post(
        "/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, **fields}
    )
    return answer.status, str(answer.json().get("error", {}).get("message", ""))


def test_the_engine_refuses_it_at_once_and_names_the_field(engine: RawHttpClient) -> None:
    answer_form = {"type": "json_schema", "json_schema": {"schema": array(10**9)}}
    status, message = chat(engine, response_format=answer_form)
    assert (status, message.partition(":")[0]) == (400, "Field 'response_format'")
    tool = {"type": "function", "function": {"name": "f", "parameters": nested(1, multiple(99_999_989))}}
    status, message = chat(engine, tools=[tool], tool_choice="required")
    assert (status, message.partition(":")[0]) == (400, "Field 'tools'")
    assert chat(engine, tools=[tool])[0] == 200, "no grammar is made of tools that may be called"
