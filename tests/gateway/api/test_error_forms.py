"""The form of errors below ``/api``: Mullama's or Ollama's, except for the versioned paths there."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import ANY

import pytest

from gateway.api.common.dialect import VERSION_PREFIXES
from gateway.http.bodies.nesting import MAX_NESTING
from protocol.failures import Code, Failure
from protocol.messages.model_files import DeleteModel
from protocol.messages.models import GetModel, ListModels
from tests.gateway.app_client import AppClient


@pytest.mark.parametrize("path", ["/api", "/api/unknown", "/api/defaults/a/b/c", "/api/v2/chat", "/api/v1x"])
def test_an_error_below_api_is_the_error_object_alone(ask: AppClient, path: str) -> None:
    result = ask("GET", path)
    assert (result.status_code, list(result.json)) == (404, ["error"])
    error = result.json["error"]
    assert (error["type"], error["code"], error["request_id"]) == (
        "not_found",
        "not_found",
        result.headers["X-Request-ID"],
    )


PYTHON, JAVASCRIPT = "ollama-python/0.6.3 (x86_64 linux) Python/3.11.7", "ollama-js/0.6.4 (x64 linux Node.js/v24)"
GO, CHROME = "ollama/0.12.6 (amd64 linux) Go/go1.24.1", "Mozilla/5.0 (X11; Linux x86_64) Chrome/142.0.0.0"
ANY_CLIENT = [("curl/8.5.0", "*/*"), (CHROME, "text/html,application/xhtml+xml,*/*;q=0.8"), ("", "application/json")]
OLLAMA_CLIENT = [
    *((PYTHON, "application/json"), (JAVASCRIPT, "application/json"), (GO, "application/x-ndjson"), (GO, "*/*")),
    *(("langchain-ollama/1.1", "*/*"), (CHROME, "application/json"), ("okhttp/4", "application/x-ndjson")),
]


def is_text(error: object) -> bool:
    """Return whether an error has Ollama's form; fails if it has neither form."""
    assert isinstance(error, dict)
    text = error["error"]
    if isinstance(text, dict):
        assert list(error) == ["error"]
        return False
    assert isinstance(text, str)
    assert {"type", "code", "request_id"} <= set(error)
    return True


@pytest.mark.parametrize(("agent", "accept"), [*ANY_CLIENT, *OLLAMA_CLIENT])
@pytest.mark.parametrize(
    ("method", "path", "texts"),
    [
        *(("DELETE", f"/api/{name}", True) for name in ("tags", "ps", "show", "embed", "pull", "version", "copy")),
        *(("POST", f"/api/{name}", True) for name in ("delete", "create", "push", "blobs/sha256:0", "tags/x")),
        *(("DELETE", f"/api/{name}", False) for name in ("models", "models/load", "system/status", "defaults/a/use")),
        *(("DELETE", f"/api/{name}", None) for name in ("generate", "chat", "embeddings", "web_search")),
    ],
)
def test_the_route_or_else_the_client_decides_between_mullama_and_ollama(
    ask: AppClient, agent: str, accept: str, method: str, path: str, texts: bool | None
) -> None:
    """``texts``: whether the error is a text for any client; None: only for Ollama's clients."""
    ask.reports[DeleteModel] = Failure(Code.MODEL_NOT_FOUND, "no")
    result = ask(method, path, headers={"User-Agent": agent, "Accept": accept})
    assert result.status_code in (404, 405, 501)
    assert is_text(result.json) is ((agent, accept) in OLLAMA_CLIENT if texts is None else texts)


def test_versioned_paths_have_no_other_form_for_clients_of_ollama(ask: AppClient) -> None:
    for path in ("/v1/unknown", "/api/v1/unknown", "/unknown"):
        assert list(ask("GET", path, headers={"User-Agent": PYTHON}).json) == ["status", "message", "error"]


@pytest.mark.parametrize("path", ["/v1/unknown", "/api/v1", "/api/v1/unknown", "/api/v0/unknown", "/unknown"])
def test_versioned_paths_keep_the_default_form(ask: AppClient, path: str) -> None:
    result = ask("GET", path)
    assert (result.status_code, list(result.json)) == (404, ["status", "message", "error"])


@pytest.mark.parametrize("prefix", VERSION_PREFIXES)
@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", "models?limit=0", 400, "invalid_request_error"),
        ("GET", "models/no/such", 404, "not_found_error"),
        ("GET", "models/no/such/", 404, "not_found_error"),
        ("DELETE", "models", 405, "invalid_request_error"),
        ("GET", "models?limit=1", 401, "authentication_error"),
    ],
)
def test_errors_of_models_have_the_form_of_the_client(
    tmp_path: Path, prefix: str, method: str, path: str, status: int, kind: str
) -> None:
    ask = AppClient(tmp_path, api_key="secret")
    ask.reports |= {ListModels: [], GetModel: Failure(Code.MODEL_NOT_FOUND, "no")}
    key = "wrong" if status == 401 else "secret"
    headers = {"Authorization": f"Bearer {key}"}
    theirs = ask(method, f"{prefix}/{path}", headers={**headers, "anthropic-version": "2023-06-01"})
    assert (theirs.status_code, theirs.json["type"], theirs.json["error"]["type"]) == (status, "error", kind)
    assert theirs.json["request_id"] == theirs.headers["request-id"]
    assert "status" not in theirs.json
    ours = ask(method, f"{prefix}/{path}", headers=headers)
    assert (ours.status_code, list(ours.json)) == (status, ["status", "message", "error"])


def test_other_routes_keep_their_form_whatever_the_client(ask: AppClient) -> None:
    headers = {"anthropic-version": "2023-06-01"}
    for path in ("/v1/chat/completions", "/v1/modelsx", "/api/models/x", "/v1/load"):
        assert ask("DELETE", path, headers=headers).json == {**ask("DELETE", path).json, "error": ANY}
        assert ask("DELETE", path, headers=headers).json.get("type") != "error"


@pytest.mark.parametrize(
    ("failure", "status", "kind"),
    [
        (Failure(Code.MODEL_NOT_FOUND, "no"), 404, "not_found"),
        (Failure(Code.CONFLICT, "no"), 409, "conflict"),
        (Failure(Code.TOO_LARGE, "no"), 413, "invalid_request"),
        (Failure(Code.OVERLOADED, "no", retry_after=2), 503, "overloaded"),
        (Failure(Code.OVERLOADED, "no", retry_after=2, status=429), 429, "overloaded"),
        (Failure(Code.DRAINING, "no"), 503, "overloaded"),
        (Failure(Code.BACKEND_DIED, "no", model="m"), 500, "model_error"),
        (Failure(Code.INTERNAL, "no"), 500, "internal_error"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_the_documents_statuses_and_types(
    ask: AppClient, failure: Failure, status: int, kind: str, stream: bool
) -> None:
    ask.answers["chat/completions"] = failure
    result = ask("POST", "/api/generate", {"model": "m", "prompt": "a", "stream": stream})
    assert (result.status_code, list(result.json)) == (status, ["error"])
    assert (result.json["error"]["type"], result.json["error"]["code"]) == (kind, failure.code)
    assert ("Retry-After" in result.headers) is (status in (429, 503))


DEEP = 1_000_000
NESTED = {
    "a list that does not end": b"[" * DEEP,
    "a field that does not end": b'{"model":"m","messages":' + b"[" * DEEP,
    "fewer brackets": b'{"model":' * 200_000,
    "an unknown field": b'{"model":"m","x":' + b"[" * (MAX_NESTING) + b"]" * MAX_NESTING + b"}",
    "objects": b'{"model":"m","x":' + b'{"a":' * 100_000 + b"null" + b"}" * 100_000 + b"}",
}


@pytest.mark.parametrize("body", NESTED)
@pytest.mark.parametrize(
    "path",
    [
        *("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/images/generations", "/v1/responses"),
        *("/v1/messages", "/v1/messages/count_tokens", "/v1/rerank", "/completion", "/tokenize", "/apply-template"),
        *("/api/chat", "/api/generate", "/api/embed", "/api/pull", "/v1/load", "/v1/pull", "/internal/pin"),
    ],
)
def test_json_that_is_nested_too_deeply_is_400_in_every_dialect(ask: AppClient, path: str, body: str) -> None:
    """This holds for any recursion limits of Python and of msgspec."""
    result = ask("POST", path, NESTED[body])
    assert result.status_code == 400, result.text
    assert "nested too deeply" in result.text or "'[' characters" in result.text
    assert not ask.bus.sent
