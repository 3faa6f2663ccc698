"""Follows the overview of a server: its state each second, also after the server was restarted."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from gateway.api.common.routes import Nothing
from gateway.api.operator.overview import follow_overview
from gateway.cli.api_client import ApiClient, stream_error
from gateway.cli.exit_codes import FORBIDDEN, UNREACHABLE, USAGE, CommandError
from gateway.overview.merge_patch import apply_patch

SILENCE_S: Final = 30.0
"""Seconds without a message after which the connection is made again: the server sends one each second, but not while its supervisor is replaced."""
FIRST_RETRY_S: Final = 0.25
MAX_RETRY_S: Final = 3.0
_TOO_MANY: Final = 429


class State(NamedTuple):
    """What is known of the server."""

    fields: dict[str, Any]
    """The overview, as its JSON."""
    problem: str = ""
    """Why the connection is lost, and ``fields`` are old; empty: it is not."""


def follow_states(server: ApiClient, retry: threading.Event) -> Iterator[State]:
    """Yield the state with each message, and once when the connection is lost.

    Raises ``CommandError`` if the server cannot be reached at first, or refuses. Between attempts to connect it waits for
    ``retry``; setting that event ends the pause.
    """
    fields: dict[str, Any] = {}
    pause = FIRST_RETRY_S
    while True:
        try:
            for overview in _overviews(server):
                fields, pause = overview, FIRST_RETRY_S
                yield State(fields)
            problem = "the connection to the server is lost"
        except CommandError as error:
            if not fields or not _is_temporary(error):
                raise
            problem = str(error)
        yield State(fields, problem)
        retry.wait(pause)
        pause = min(2 * pause, MAX_RETRY_S)


def _overviews(server: ApiClient) -> Iterator[dict[str, Any]]:
    fields: dict[str, Any] = {}
    for name, text in server.follow(follow_overview, Nothing(), SILENCE_S):
        data = json.loads(text)
        if error := stream_error(data):
            raise CommandError(str(error), UNREACHABLE)  # it stops, or the key was revoked: the next attempt tells
        if name == "overview":
            fields = data
        elif name == "patch":
            fields = apply_patch(fields, data)
        else:
            continue
        yield fields


def _is_temporary(error: CommandError) -> bool:
    if error.exit_code in (FORBIDDEN, USAGE):
        return False
    return not error.status or error.status == _TOO_MANY or error.status >= 500


class Feed:
    """Follows a server in a thread of its own."""

    def __init__(self, server: ApiClient, state: State) -> None:
        """Begin with a state that was read already."""
        self._server = server
        self._known = state, time.monotonic()
        self.failure: CommandError | None = None
        """Why it has ended; None: it goes on."""

    @property
    def state(self) -> State:
        """The newest state."""
        return self._known[0]

    @property
    def age(self) -> float:
        """Seconds since the server was heard last."""
        return time.monotonic() - self._known[1]

    def start(self, changed: Callable[[], object]) -> None:
        """Follow, and call ``changed`` with each new state, in the thread."""
        # A daemon, because it may be blocked reading from a stopped server when we exit.
        threading.Thread(target=self._follow, args=(changed,), daemon=True).start()

    def _follow(self, changed: Callable[[], object]) -> None:
        try:
            for state in follow_states(self._server, threading.Event()):
                self._known = state, self._known[1] if state.problem else time.monotonic()
                changed()
        except CommandError as problem:
            self.failure = problem
            changed()
