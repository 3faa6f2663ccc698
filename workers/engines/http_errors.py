"""Errors of our engine servers, in llama-server's form."""

from __future__ import annotations

from typing import Any


class EngineHttpError(Exception):
    """A request that is answered with an error. The text is for its client."""

    def __init__(self, message: str, status: int = 400, kind: str = "invalid_request_error", **facts: int) -> None:
        """``facts`` are sent with the message."""
        super().__init__(message)
        self.status = status
        self.body: dict[str, Any] = {"code": status, "message": message, "type": kind, **facts}
