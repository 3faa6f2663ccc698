"""One HTTP request as the logs and errors know it: its label, its model, when it began, how to end its connection."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from protocol import ids

KEY: Final = "lemonbus.visit"


def _nothing() -> None:
    """Stand in where no real connection is there (tests)."""


class Visit:
    """Kept in the WSGI environment; get it with :func:`of`."""

    __slots__ = ("close_after", "code", "hand_over", "label", "last", "model", "started")

    def __init__(self, given: str | None) -> None:
        """Begin now; ``given``: the caller's ``X-Request-ID``."""
        self.label = ids.label(given)
        """The request id: in the response header, the log and error bodies. Never a key."""
        self.model = ""
        """The model's name, as soon as it is known; a dialect sets it for the log line."""
        self.code = ""
        """The code of the failure it was answered with."""
        self.started = time.monotonic()
        self.last = False
        """Set by a streaming body before it hands out its last piece: the end of the response goes with it."""
        self.close_after: Callable[[], None] = _nothing
        """Makes the connection close after this response, whatever its header said."""
        self.hand_over: Callable[[], None] = _nothing
        """For WebSockets: gunicorn writes nothing any more, and closes the connection when the responder returns."""


def of(env: dict[str, Any]) -> Visit:
    """Return the visit of ``req.env``; begins one if there is none yet."""
    visit: Visit | None = env.get(KEY)
    if visit is None:
        visit = env[KEY] = Visit(env.get("HTTP_X_REQUEST_ID"))
    return visit
