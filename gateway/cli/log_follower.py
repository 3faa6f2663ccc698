"""The server's log stream as a client reads it: one connection at a time, resumed where the last one ended."""

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

PING_INTERVAL_S: Final = 25
FIRST_RETRY_S: Final = 0.25
MAX_RETRY_S: Final = 5.0
_PATH: Final = "/logs/stream"

Entry = dict[str, Any]


class ConnectionLostError(Exception):
    """The connection ended; what came so far is complete."""


class LogFollower:
    """Entries of a server's log, each once."""

    def __init__(self, server: ApiClient, filters: dict[str, str], note: Callable[[str], None]) -> None:
        """Read what matches ``filters``; ``note`` is told about gaps and lost connections."""
        self._server = server
        self._filters = filters
        self._note = note
        self._after: int | None = None
        self._boot = ""

    def snapshot(self) -> list[Entry]:
        """Return the retained entries."""
        socket = self._subscribe()
        try:
            while True:
                entries, whole = self._entries(self._receive(socket))
                if whole:
                    return entries
        finally:
            _close(socket)

    def follow(self, retry: threading.Event) -> Iterator[Entry]:
        """Yield the retained entries, then new ones as they come, across restarts of the server.

        ``retry`` is waited on between attempts; setting it ends the waiting.
        """
        socket = self._subscribe()
        while True:
            try:
                while True:
                    yield from self._entries(self._receive(socket))[0]
            except ConnectionLostError:
                self._note("the connection to the server is lost; waiting for it")
            finally:
                _close(socket)
            socket = self._again(retry)

    def _again(self, retry: threading.Event) -> simple_websocket.Client:
        pause = FIRST_RETRY_S
        while True:
            try:
                return self._subscribe()
            except CommandError as trouble:
                if trouble.exit_code != UNREACHABLE:
                    raise
            retry.wait(pause)
            pause = min(2 * pause, MAX_RETRY_S)

    def _subscribe(self) -> simple_websocket.Client:
        self._ask()
        url = f"ws{self._server.url.removeprefix('http')}{_PATH}"
        try:
            socket = simple_websocket.Client.connect(
                url,
                headers=self._server.headers,
                ping_interval=PING_INTERVAL_S,
                # Not waited for at our end: it may sit in a read on a server that stopped.
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

    def _ask(self) -> None:
        """Ask without WebSocket first: that says why not where the library does not."""
        try:
            self._server.call("GET", _PATH)
        except CommandError as trouble:
            if trouble.exit_code in (FORBIDDEN, UNREACHABLE):
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
            raise http_error(400, json.dumps(error if isinstance(error, dict) else message).encode())
        if kind == "logs.snapshot":
            boot = message.get("boot", "")
            if boot != self._boot:
                self._boot, self._after = boot, None
            return [entry for entry in message["entries"] if self._is_new(entry)], True
        if kind == "logs.entry":
            return [message["entry"]] if self._is_new(message["entry"]) else [], False
        return [], False

    def _is_new(self, entry: Entry) -> bool:
        if self._after is not None and entry["seq"] <= self._after:
            return False
        self._after = entry["seq"]
        if entry.get("dropped"):
            self._note(f"{entry['dropped']} lines were lost before the next one")
        return True


def _handshake_error(status: int, server: ApiClient) -> CommandError:
    """Return what a refused handshake means: 503 is a server that starts or stops."""
    if status == 503:
        return CommandError(f"{server.url} is starting or stopping", UNREACHABLE)
    return http_error(status, b"")


def _close(socket: simple_websocket.Client) -> None:
    with contextlib.suppress(simple_websocket.ConnectionClosed, OSError):  # then it is closed, which is what was wanted
        socket.close()
