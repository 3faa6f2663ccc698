"""One HTTP request as the logs and errors know it: its label, its model, when it began, how to end its connection."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from protocol import ids
from protocol.failures import Code, Failure

ENVIRON_KEY: Final = "lemonbus.visit"
_MONITORING_PATHS: Final = ("/live", "/health", "/logs/stream")
"""What monitors ask for again and again."""
_MAX_DETAIL_LENGTH: Final = 400
"""An engine's last words are in its worker's line too; their end says most."""
_EXPECTED: Final = frozenset({Code.STARTING, Code.DRAINING})


def _no_connection() -> None:
    """Stand in where no real connection is there (tests)."""


class RequestContext:
    """Kept in the WSGI environment; get it with :func:`of`."""

    __slots__ = ("close_after", "failure", "hand_over", "is_admin", "label", "last", "model", "started")

    def __init__(self, given: str | None) -> None:
        """Begin now; ``given``: the caller's ``X-Request-ID``."""
        self.label = ids.request_label(given)
        """The request id: in the response header, the log and error bodies. Never a key."""
        self.model = ""
        """The model's name, as soon as it is known; a dialect sets it for the log line."""
        self.failure: Failure | None = None
        """What it was answered with, if not with what was asked for."""
        self.is_admin = False
        """Whether answers may show an engine's last words: the caller has the API key, or is a local program or page."""
        self.started = time.monotonic()
        self.last = False
        """Set by a streaming body before it hands out its last piece: the end of the response goes with it."""
        self.close_after: Callable[[], None] = _no_connection
        """Makes the connection close after this response, whatever its header said."""
        self.hand_over: Callable[[], None] = _no_connection
        """For WebSockets: gunicorn writes nothing any more, and closes the connection when the responder returns."""

    def leave(self) -> None:
        """The response is over: let go of the connection, or request and response would keep each other."""
        self.close_after = self.hand_over = _no_connection

    def level(self, path: str) -> str:
        """Return how much its line in the log matters: ours to mend, a request like others, or a monitor's."""
        if self.failure is not None and self.failure.http_status >= 500 and self.failure.code not in _EXPECTED:
            return "warning"
        return "debug" if path.endswith(_MONITORING_PATHS) else "info"

    def log_fields(self) -> dict[str, Any]:
        """Return what its line tells beside the request itself."""
        fields: dict[str, Any] = {"model": self.model} if self.model else {}
        if self.failure is not None:
            fields |= {"code": self.failure.code.value, "reason": self.failure.loggable_message}
            if self.failure.detail:
                fields["detail"] = self.failure.detail[-_MAX_DETAIL_LENGTH:]
        return fields


def request_context(env: dict[str, Any]) -> RequestContext:
    """Return the visit of ``req.env``; begins one if there is none yet."""
    context: RequestContext | None = env.get(ENVIRON_KEY)
    if context is None:
        context = env[ENVIRON_KEY] = RequestContext(env.get("HTTP_X_REQUEST_ID"))
    return context
