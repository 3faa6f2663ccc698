"""Which form errors have below ``/api``: Mullama's, except for the versioned paths that lie there too."""

from __future__ import annotations

import pytest

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
