"""Errors of Anthropic's routes without a server: their form, their status and their types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.api.anthropic.dialect import AnthropicDialect
from gateway.api.anthropic.errors import type_of
from gateway.requests.admission_states import AdmissionState
from protocol.failures import HTTP_ERRORS, Code, Failure
from tests.gateway.app_client import AppClient

URL = "/v1/messages"
LEAST: dict[str, Any] = {"model": "m", "max_tokens": 16, "messages": [{"role": "user", "content": "Hi"}]}
TYPES = {
    "invalid_request_error",
    "authentication_error",
    "permission_error",
    "not_found_error",
    "conflict_error",
    "request_too_large",
    "rate_limit_error",
    "timeout_error",
    "api_error",
    "overloaded_error",
}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "kind"),
    [
        ("POST", URL, b"{", 400, "invalid_request_error"),
        ("POST", URL, b"x" * 2000, 413, "request_too_large"),
        ("GET", URL, None, 405, "invalid_request_error"),
        ("POST", f"{URL}/batches/unknown", {}, 405, "invalid_request_error"),
        ("POST", URL, LEAST, 529, "overloaded_error"),
    ],
)
def test_every_error_has_anthropics_form(
    tmp_path: Path, method: str, path: str, body: Any, status: int, kind: str
) -> None:
    ask = AppClient(tmp_path, body_limit=1000)
    ask.answers["chat/completions"] = Failure(Code.OVERLOADED, "too many", retry_after=3)
    result = ask(method, path, body)
    assert (result.status_code, result.json["type"], result.json["error"]["type"]) == (status, "error", kind)
    assert result.json["request_id"] == result.headers["request-id"]
    assert result.headers.get("Retry-After") == ("3" if status == 529 else None)


def test_what_is_refused_before_routing_has_its_form_too(tmp_path: Path) -> None:
    closed = AppClient(tmp_path, api_key="k")
    stopping = AppClient(tmp_path)
    stopping.session.admission.state = AdmissionState.DRAINING
    for ask, status, kind in ((closed, 401, "authentication_error"), (stopping, 503, "overloaded_error")):
        for path in (URL, f"{URL}/unknown", "/api/v0/messages"):
            result = ask("POST", path, LEAST)
            assert (result.status_code, result.json["error"]["type"]) == (status, kind)
            assert result.headers["request-id"]


@pytest.mark.parametrize("code", list(HTTP_ERRORS))
def test_every_failure_has_one_of_anthropics_types(code: Code) -> None:
    failure = Failure(code, "it failed")
    status = AnthropicDialect().error_status(failure)
    kind = type_of(failure)
    assert kind in TYPES
    assert (status >= 500) == (kind in {"api_error", "overloaded_error", "timeout_error"})
