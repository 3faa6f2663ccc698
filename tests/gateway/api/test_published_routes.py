"""No path that a published package can ask for is unknown: it is served, or refused by name with an alternative."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from gateway.api.common.dialect import VERSION_PREFIXES
from tests.gateway.api.error_bodies import is_error
from tests.gateway.app_client import AppClient

_CALLS = re.compile(r"_?(get|post|put|patch|delete|get_api_list|request|request_raw)")
ROOTS = {"openai": "/v1", "anthropic": "", "ollama": ""}
"""Package → what its base URL adds to its paths."""


@cache
def published_paths(package: str) -> list[str]:
    """Return the paths that the resources of an installed package name, with ``x`` for each parameter."""
    found = importlib.util.find_spec(package)
    assert found is not None
    assert found.origin is not None
    files = [each for each in Path(found.origin).parent.rglob("*.py") if "types" not in each.parts]
    paths = {path.partition("?")[0] for file in files for path in _paths_of(ast.parse(file.read_text()))}
    return sorted(ROOTS[package] + path for path in paths)


def _paths_of(tree: ast.Module) -> Iterator[str]:
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and _CALLS.fullmatch(call.func.attr):
            words = [_text(each) for each in call.args[:3]]
            yield from (re.sub(r"\{[^}]*\}", "x", word) for word in words if word.startswith("/"))


def _text(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(str(each.value) if isinstance(each, ast.Constant) else "x" for each in parts)
        case ast.Call(func=ast.Name(id="path_template"), args=[ast.Constant(value=str() as text), *_]):
            return text
    return ""


@pytest.mark.parametrize(("package", "at_least"), [("openai", 100), ("anthropic", 100), ("ollama", 10)])
def test_no_path_of_a_package_is_unknown(ask: AppClient, package: str, at_least: int) -> None:
    paths = published_paths(package)
    assert len(paths) >= at_least
    unknown = [path for path in paths if ask("PUT", path).status_code == 404]
    # PUT: 405 where there is a route
    assert unknown == []


@pytest.mark.parametrize("prefix", VERSION_PREFIXES)
@pytest.mark.parametrize(
    ("method", "path", "word"),
    [
        ("GET", "assistants", "previous_response_id"),
        ("DELETE", "threads/t/runs/r", "previous_response_id"),
        ("POST", "vector_stores/v/search", "embeddings"),
        ("GET", "organization/usage/completions", "lemonbus usage"),
        ("POST", "realtime/client_secrets", "/v1/realtime"),
        ("POST", "uploads", "POST files"),
    ],
)
def test_a_refusal_names_an_alternative(ask: AppClient, prefix: str, method: str, path: str, word: str) -> None:
    answer = ask(method, f"{prefix}/{path}", {} if method == "POST" else None)
    is_error(answer, 501, "unsupported_operation")
    assert word in answer.json["error"]["message"]
    assert not ask.bus.sent


def test_clients_get_the_refusal_in_their_own_form(ask: AppClient) -> None:
    of_anthropic = ask("GET", "/v1/skills", headers={"anthropic-version": "2023-06-01"})
    assert (of_anthropic.status_code, of_anthropic.json["type"]) == (501, "error")
    assert of_anthropic.json["error"]["type"] == "api_error"
    of_ollama = ask("POST", "/api/web_search", {}, headers={"User-Agent": "ollama-python/0.6"})
    assert (of_ollama.status_code, of_ollama.json["code"]) == (501, "unsupported_operation")
    assert "as a tool" in of_ollama.json["error"]


@pytest.mark.parametrize("path", ["/v1/assistantship", "/v1/nothing", "/api/mention", "/v2/assistants"])
def test_other_paths_are_unknown(ask: AppClient, path: str) -> None:
    assert ask("GET", path).status_code == 404
