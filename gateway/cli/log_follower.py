"""Reads the server's log stream. Each connection resumes where the last one ended."""

from __future__ import annotations

import contextlib
import functools
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import simple_websocket
from wsproto.utilities import ProtocolError

from gateway.cli.api_client import ApiClient, http_error
from gateway.cli.exit_codes import FORBIDDEN, UNREACHABLE, CommandError
from protocol.failures import Code

PING_INTERVAL_S: Final = 25
FIRST_RETRY_S: Final = 0.25
MAX_RETRY_S: Final = 5.0
_PATH: Final = "/logs/stream"
_STATUSES: Final = {Code.UNAUTHORIZED.value: 401, Code.FORBIDDEN.value: 403}
"""Status of errors after the handshake: for example, the key was revoked."""
_TEMPORARY: Final = frozenset({Code.DRAINING.value, Code.SUPERVISOR_LOST.value, Code.TIMEOUT.value})
"""Errors after the handshake that say that the server is replaced or restarted."""

Entry = dict[str, Any]


class ConnectionLostError(Exception):
    """The connection ended between two messages."""


class LogFollower:
    """Yields the entries of a server's log, each once."""

    def __init__(self, server: ApiClient, filters: dict[str, str], warn: Callable[[str], None]) -> None:
        """Read the entries that match ``filters``. ``warn`` is called with a line for each gap and lost connection."""
        self._server = server
        self._filters = filters
        self._warn = warn
        self._after: int | None = None
        self._boot = ""
        self.retained_since = ""
        """Time of the oldest line that the server still has, whatever the filters; empty: it does not say."""

    def snapshot(self) -> list[Entry]:
        """Return the retained entries."""
        socket = self._subscribe()
        try:
            while True:
                entries, is_snapshot = self._entries(self._receive(socket))
                if is_snapshot:
                    return entries
        finally:
            _close(socket)

    def follow(self, retry: threading.Event) -> Iterator[Entry]:
        """Yield the retained entries, then new ones as they come, across restarts of the server.

        Between attempts to connect, it waits for ``retry``; setting that event ends the pause.
        """
        socket = self._subscribe()
        while True:
            try:
                while True:
                    yield from self._entries(self._receive(socket))[0]
            except (ConnectionLostError, CommandError) as problem:
                if isinstance(problem, CommandError) and problem.exit_code != UNREACHABLE:
                    raise
                self._warn("the connection to the server is lost; waiting for the server")
            finally:
                _close(socket)
            socket = self._reconnect(retry)

    def _reconnect(self, retry: threading.Event) -> simple_websocket.Client:
        pause = FIRST_RETRY_S
        while True:
            try:
                return self._subscribe()
            except CommandError as problem:
                if problem.exit_code != UNREACHABLE and problem.status != 429:
                    raise
            retry.wait(pause)
            pause = min(2 * pause, MAX_RETRY_S)

    def _subscribe(self) -> simple_websocket.Client:
        self._probe()
        url = f"ws{self._server.url.removeprefix('http')}{_PATH}"
        try:
            socket = simple_websocket.Client.connect(
                url,
                headers=self._server.headers,
                ping_interval=PING_INTERVAL_S,
                # A daemon, because it may be blocked reading from a stopped server when we exit.
                thread_class=functools.partial(threading.Thread, daemon=True),
            )
            subscription = {"type": "logs.subscribe", "after_seq": self._after, **self._filters}
            socket.send(json.dumps({**subscription, "boot": self._boot} if self._boot else subscription))
        except simple_websocket.ConnectionError as problem:
            status = problem.status_code or 500
            raise _handshake_error(status, self._server) from problem
        except (OSError, ProtocolError, simple_websocket.ConnectionClosed) as problem:
            raise CommandError(f"{self._server.url}: the connection broke off", UNREACHABLE) from problem
        return socket

    def _probe(self) -> None:
        """Request the path without WebSocket first: this gives the reason for a refusal, which the library hides."""
        try:
            self._server.call("GET", _PATH)
        except CommandError as problem:
            if problem.status == 503:
                raise CommandError(str(problem), UNREACHABLE, 503) from problem
            if problem.exit_code in (FORBIDDEN, UNREACHABLE) or problem.status == 429:
                raise

    def _receive(self, socket: simple_websocket.Client) -> Any:
        try:
            return json.loads(socket.receive())
        except (simple_websocket.ConnectionClosed, OSError) as problem:
            raise ConnectionLostError from problem

    def _entries(self, message: Any) -> tuple[list[Entry], bool]:
        """Return a message's entries and whether it was the snapshot."""
        kind = message.get("type")
        if kind == "error":
            error = message.get("error")
            error = error if isinstance(error, dict) else message
            refused = http_error(_STATUSES.get(str(error.get("code")), 400), json.dumps(error).encode())
            raise CommandError(str(refused), UNREACHABLE) if error.get("code") in _TEMPORARY else refused
        if kind == "logs.snapshot":
            boot = message.get("boot", "")
            if boot != self._boot:
                self._boot, self._after = boot, None
            self.retained_since = message.get("retained_since", "")
            return [entry for entry in message["entries"] if self._is_new(entry)], True
        if kind == "logs.entry":
            return [message["entry"]] if self._is_new(message["entry"]) else [], False
        return [], False

    def _is_new(self, entry: Entry) -> bool:
        if self._after is not None and entry["seq"] <= self._after:
            return False
        self._after = entry["seq"]
        if entry.get("dropped"):
            self._warn(f"{entry['dropped']} lines were lost before the next one")
        return True


def _handshake_error(status: int, server: ApiClient) -> CommandError:
    """Return the error for a refused handshake; 503 means that the server starts or stops."""
    if status == 503:
        return CommandError(f"{server.url} is starting or stopping", UNREACHABLE)
    return http_error(status, b"")


def _close(socket: simple_websocket.Client) -> None:
    with contextlib.suppress(simple_websocket.ConnectionClosed, OSError):  # it is closed already
        socket.close()
