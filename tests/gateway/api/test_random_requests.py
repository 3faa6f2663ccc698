"""Random JSON against every route: bad input is a 4xx with a message, never a 500."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.failures import Code, Failure
from tests.gateway.api.error_bodies import api_error
from tests.gateway.app_client import AppClient
from tests.support.properties import examples

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
VALID: dict[str, dict[str, Any]] = {
    "chat/completions": {
        **CHAT,
        "stream": False,
        "stop": ["a"],
        "max_tokens": 1,
        "top_k": 1,
        "seed": 1,
        "tools": [],
        "response_format": {"type": "json_object"},
        "grammar": "",
        "json_schema": None,
    },
    "completions": {"model": "m", "prompt": ["a", "b"], "echo": False, "logprobs": 1, "n": 1},
    "responses": {
        "model": "m",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
        "tools": [{"type": "function", "name": "f", "parameters": {}}],
        "tool_choice": {"type": "function", "name": "f"},
        "text": {"format": {"type": "json_schema", "name": "a", "schema": {}}},
        "include": [],
        "metadata": {"a": "b"},
        "reasoning": {"effort": "low"},
        "max_output_tokens": 1,
        "truncation": "auto",
        "store": True,
    },
    "embeddings": {"model": "m", "input": [[1], [2]], "encoding_format": "float", "dimensions": 1},
    "reranking": {"model": "m", "query": "a", "documents": ["b"], "top_n": 1, "texts": None},
    "images/generations": {"prompt": "a", "size": "64x64", "seed": 1, "n": 1, "response_format": "b64_json"},
    "slots/0?action=save": {"filename": "a"},
    "load": {"model_name": "m", "ctx_size": 1, "pinned": True, "device": "cpu", "cache_dir": "/", "llamacpp_args": ""},
    "unload": {"model_name": "m"},
    "delete": {"model_name": "m"},
    "pull": {"model_name": "user.m", "checkpoint": "a/b:c", "recipe": "llamacpp", "stream": False, "vision": True},
    "params": {"temperature": 1, "top_k": 1, "do_sample": True, "max_length": 1},
    "install": {"recipe": "llamacpp", "backend": "cpu", "force": False, "stream": False},
    "uninstall": {"recipe": "llamacpp", "backend": "cpu"},
    "/api/generate": {
        "model": "m",
        "prompt": "a",
        "system": "b",
        "images": [],
        "raw": False,
        "context": [],
        "stop": ["a"],
        "options": {"num_predict": 1, "seed": 1, "stop": ["a"], "temperature": 0.5},
        "format": {"type": "object"},
        "think": "low",
        "keep_alive": "5m",
    },
    "/api/chat": {
        "model": "m",
        "messages": [
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
            {"role": "tool", "content": "b", "tool_name": "f"},
        ],
        "tools": [{}],
        "max_tokens": 1,
        "logprobs": True,
        "top_logprobs": 1,
    },
    "/api/embeddings": {"model": "m", "prompt": "a", "keep_alive": 0},
    "/api/embed": {"model": "m", "input": ["a"], "dimensions": 1, "truncate": True},
}
"""Each route that takes JSON, with a request that it accepts. Those without a slash are versioned."""

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**400, -(10**400), 2**63, 2**64, -(2**63) - 1, 1e308, -0.0, 5e-324])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["\0", "user.", "a/b", "../..", "x" * 2000, "json_object", "root ::= root"])
)
JSON = st.recursive(
    SCALARS, lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=8), each, max_size=3)
)


def path_of(route: str) -> str:
    return route if route.startswith("/") else f"/v1/{route}"


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """Return a route and a request in which one to three fields are anything."""
    route = draw(st.sampled_from(sorted(VALID)))
    body = dict(VALID[route])
    for _ in range(draw(st.integers(1, 3))):
        body[draw(st.sampled_from(sorted(body)) | st.text(max_size=8))] = draw(JSON)
    return route, body


@settings(examples(120), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(request=requests())
def test_no_request_is_answered_with_500(ask: AppClient, request: tuple[str, dict[str, Any]]) -> None:
    accepted = Failure(Code.CONFLICT, "it came through")
    ask.bus.reports, ask.bus.answers = defaultdict(lambda: accepted), defaultdict(lambda: accepted)
    route, body = request
    result = ask("POST", path_of(route), body)
    assert 400 <= result.status_code < 500, result.text
    assert (api_error(result) if route.startswith("/api/") else result.json["error"])["message"]


@pytest.mark.parametrize("route", sorted(VALID))
def test_the_unchanged_requests_are_accepted(tmp_path: Path, route: str) -> None:
    """Without this, the property could hold merely because every request is refused at its first field."""
    ask = AppClient(tmp_path, cache_dir="/")
    accepted = Failure(Code.CONFLICT, "it came through")
    ask.bus.reports, ask.bus.answers = defaultdict(lambda: accepted), defaultdict(lambda: accepted)
    body = {name: value for name, value in VALID[route].items() if name != "texts"}
    assert ask("POST", path_of(route), body).status_code == 409


@pytest.mark.parametrize(
    "fields",
    [
        {"json_schema": {"type": "object"}},
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}},
    ],
)
def test_a_grammar_and_a_schema_exclude_each_other(ask: AppClient, fields: dict[str, Any]) -> None:
    result = ask("POST", "/v1/chat/completions", {**CHAT, "grammar": 'root ::= "a"', **fields})
    assert (result.status_code, result.json["error"]["param"]) == (400, "grammar")
