"""Which form errors have below ``/api``: Mullama's, except for the versioned paths that lie there too."""

from __future__ import annotations

import pytest

from protocol.failures import Code, Failure
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


@pytest.mark.parametrize("path", ["/v1/unknown", "/api/v1", "/api/v1/unknown", "/api/v0/unknown", "/unknown"])
def test_versioned_paths_keep_the_default_form(ask: AppClient, path: str) -> None:
    result = ask("GET", path)
    assert (result.status_code, list(result.json)) == (404, ["status", "message", "error"])


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
