"""Checks of the default error body."""

from __future__ import annotations

from typing import Any


def is_error(result: Any, status: int, kind: str, param: str | None = None) -> dict[str, Any]:
    """Check that the response has the default error body; return it."""
    body: dict[str, Any] = result.json
    assert result.status_code == status, body
    assert body["status"] == "error"
    assert body["message"] == body["error"]["message"]
    assert body["error"]["type"] == kind
    assert body["error"]["request_id"] == result.headers["X-Request-ID"]
    if param is not None:
        assert body["error"]["param"] == param
    return body


def is_api_error(result: Any, status: int, kind: str, code: str = "", param: str | None = None) -> None:
    """Below ``/api`` the body is the error object alone."""
    assert result.status_code == status, result.text
    error = result.json["error"]
    assert (error["type"], error["code"]) == (kind, code or kind)
    assert list(result.json) == ["error"]
    if param:
        assert error["param"] == param
