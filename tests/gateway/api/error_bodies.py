"""Checks of error bodies: the default one, and those below ``/api``."""

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


def api_error(result: Any) -> dict[str, Any]:
    """Return the fields of an error below ``/api``: Mullama's is only an object; Ollama's has its message as ``error``."""
    body: dict[str, Any] = result.json
    if isinstance(body["error"], str):
        return {**body, "message": body["error"]}
    assert list(body) == ["error"]
    error: dict[str, Any] = body["error"]
    return error


def is_api_error(result: Any, status: int, kind: str, code: str = "", param: str | None = None) -> None:
    """Check an error below ``/api``, of either form."""
    assert result.status_code == status, result.text
    error = api_error(result)
    assert (error["type"], error["code"]) == (kind, code or kind)
    if param:
        assert error["param"] == param
