"""One HTTP request as the logs and errors know it: its label, its model, when it began, how to end its connection."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from protocol import ids
from protocol.failures import Code, Failure

KEY: Final = "lemonbus.visit"
_WATCHED: Final = ("/live", "/health", "/logs/stream")
"""What monitors ask for again and again."""
_LONGEST_DETAIL: Final = 400
"""An engine's last words are in its worker's line too; their end says most."""
_EXPECTED: Final = frozenset({Code.STARTING, Code.DRAINING})


def _nothing() -> None:
    """Stand in where no real connection is there (tests)."""


class Visit:
    """Kept in the WSGI environment; get it with :func:`of`."""

    __slots__ = ("close_after", "failure", "hand_over", "label", "last", "model", "started")

    def __init__(self, given: str | None) -> None:
        """Begin now; ``given``: the caller's ``X-Request-ID``."""
        self.label = ids.label(given)
        """The request id: in the response header, the log and error bodies. Never a key."""
        self.model = ""
        """The model's name, as soon as it is known; a dialect sets it for the log line."""
        self.failure: Failure | None = None
        """What it was answered with, if not with what was asked for."""
        self.started = time.monotonic()
        self.last = False
        """Set by a streaming body before it hands out its last piece: the end of the response goes with it."""
        self.close_after: Callable[[], None] = _nothing
        """Makes the connection close after this response, whatever its header said."""
        self.hand_over: Callable[[], None] = _nothing
        """For WebSockets: gunicorn writes nothing any more, and closes the connection when the responder returns."""

    def leave(self) -> None:
        """The response is over: let go of the connection, or request and response would keep each other."""
        self.close_after = self.hand_over = _nothing

    def level(self, path: str) -> str:
        """Return how much its line in the log matters: ours to mend, a request like others, or a monitor's."""
        if self.failure is not None and self.failure.http_status >= 500 and self.failure.code not in _EXPECTED:
            return "warning"
        return "debug" if path.endswith(_WATCHED) else "info"

    def story(self) -> dict[str, Any]:
        """Return what its line tells beside the request itself."""
        told: dict[str, Any] = {"model": self.model} if self.model else {}
        if self.failure is not None:
            told |= {"code": self.failure.code.value, "reason": self.failure.gist}
            if self.failure.detail:
                told["detail"] = self.failure.detail[-_LONGEST_DETAIL:]
        return told


def of(env: dict[str, Any]) -> Visit:
    """Return the visit of ``req.env``; begins one if there is none yet."""
    visit: Visit | None = env.get(KEY)
    if visit is None:
        visit = env[KEY] = Visit(env.get("HTTP_X_REQUEST_ID"))
    return visit
