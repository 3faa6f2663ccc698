"""One HTTP exchange over a plain socket: everything that was received, when, and whether it was complete."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import httptools

PATIENCE: Final = 30.0
"""Seconds after which a read that brought nothing fails the test."""


@dataclass(frozen=True)
class SseEvent:
    """One server-sent event; ``at`` is monotonic seconds. Comments are events named ``:``."""

    at: float
    name: str
    data: str

    def json(self) -> Any:
        return json.loads(self.data)


class HttpExchange:
    """A request that was sent, and the part of its response that was read.

    ``complete`` is the protocol's own end (Content-Length or the last chunk); ``closed`` the connection's.
    """

    def __init__(self, connection: socket.socket, head: bool = False) -> None:
        self.connection = connection
        self.started = time.monotonic()
        self.headers: dict[str, str] = {}
        self.status = 0
        self.body = b""
        self.complete = self.closed = False
        self.events: list[SseEvent] = []
        self._pending = b""
        self._head = head
        self._parser = httptools.HttpResponseParser(self)

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self.complete = self._head

    def on_body(self, body: bytes) -> None:
        self.body += body
        if self.headers.get("content-type", "").startswith("text/event-stream"):
            self._pending += body
            self._split()

    def on_message_complete(self) -> None:
        self.complete = self.status >= 200

    def _split(self) -> None:
        *whole, self._pending = self._pending.split(b"\n\n")
        for block in whole:
            name, data = "", []
            for line in block.decode().splitlines():
                field, _, value = line.partition(":")
                if field == "event":
                    name = value.strip()
                elif field == "data":
                    data.append(value.removeprefix(" "))
                elif not field:
                    name = ":"
            self.events.append(SseEvent(time.monotonic(), name, "\n".join(data)))

    def send(self, data: bytes) -> None:
        self.connection.sendall(data)

    def read(self, most: int = 65_536, patience: float = PATIENCE) -> None:
        """Wait for some bytes and store them; set ``closed`` at the end of the connection."""
        self.connection.settimeout(patience)
        try:
            data = self.connection.recv(most)
        except ConnectionResetError:
            data = b""
        if data:
            self._parser.feed_data(data)
        else:
            self.closed = True

    def until(self, condition: Callable[[HttpExchange], object], patience: float = PATIENCE) -> HttpExchange:
        """Read until the condition holds; fails if the response ends before."""
        end = time.monotonic() + patience
        while not condition(self):
            assert not self.over, f"the response ended first: {self}"
            assert time.monotonic() < end, f"still waiting after {patience:g} s: {self}"
            self.read(patience=patience)
        return self

    def finish(self, patience: float = PATIENCE) -> HttpExchange:
        """Read to the end of the response, or of the connection, and close it; TimeoutError if that takes too long."""
        end = time.monotonic() + patience
        try:
            while not self.over:
                if time.monotonic() > end:
                    raise TimeoutError(f"did not end within {patience:g} s: {self}")
                self.read(patience=patience)
        finally:
            self.connection.close()
        return self

    def read_to_close(self, patience: float = PATIENCE) -> bool:
        """Return whether the server closes the connection by itself."""
        try:
            while not self.closed:
                self.read(patience=patience)
        except TimeoutError:
            return False
        return True

    def end_sending(self) -> None:
        """Announce that nothing more will be sent, and continue to read."""
        self.connection.shutdown(socket.SHUT_WR)

    def hang_up(self) -> None:
        self.connection.close()

    @property
    def over(self) -> bool:
        return self.complete or self.closed

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def messages(self) -> list[SseEvent]:
        """The events that are not comments: the server sends comments if nothing else is sent for a while, as on a busy machine."""
        return [event for event in self.events if event.name != ":"]

    @property
    def chunks(self) -> list[Any]:
        """The JSON of every data event but ``[DONE]``."""
        return [event.json() for event in self.events if event.data and event.data != "[DONE]"]

    @property
    def done(self) -> bool:
        """Whether the end marker of an OpenAI stream came."""
        return any(event.data == "[DONE]" for event in self.events)

    @property
    def text(self) -> str:
        """The text of the first choice, from a stream or a whole answer."""
        if self.events:
            choices = [chunk["choices"][0] for chunk in self.chunks if chunk.get("choices")]
            return "".join(choice.get("delta", {}).get("content") or choice.get("text") or "" for choice in choices)
        choice = self.json()["choices"][0]
        return str(choice["message"]["content"] if "message" in choice else choice["text"])

    @property
    def error(self) -> Any:
        """The error object of the answer, in-band for streams; empty if there is none."""
        if self.events:
            return next((chunk["error"] for chunk in self.chunks if "error" in chunk), {})
        return self.json().get("error", {}) if self.body else {}

    @property
    def first_token(self) -> float:
        """Seconds from the request to the first event with text; -1 if none came."""
        for event in self.events:
            if '"content":"' in event.data.replace(" ", "") or '"text":"' in event.data.replace(" ", ""):
                return event.at - self.started
        return -1.0

    def __repr__(self) -> str:
        kind = "complete" if self.complete else "closed" if self.closed else "open"
        return f"<{self.status} {kind}, {len(self.events)} events, body ends {self.body[-400:]!r}>"
