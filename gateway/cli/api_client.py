"""The server as a client sees it: calls, streams, and what goes wrong on the way, as lines and exit codes."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Generator
from contextlib import closing
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from gateway.cli.exit_codes import FAILED, FORBIDDEN, UNREACHABLE, USAGE, CommandError

CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 30.0
SHOWN_LINES: Final = 10
"""Lines of an engine's output that an error shows."""
_VERSION_PREFIX: Final = re.compile(r"(/api)?/v[01]$")


class ServerEvent(NamedTuple):
    """One server-sent event."""

    event: str
    data: str


class ApiClient:
    """One lemonbus server."""

    def __init__(self, url: str, key: str = "") -> None:
        """Speak to ``url``; a version prefix such as ``/v1`` in it is not needed, and tolerated."""
        try:
            parts = urlsplit(url)
            self._port = parts.port
        except ValueError as problem:
            raise CommandError(f"{url}: {problem}", USAGE) from problem
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise CommandError(f"{url!r} is no address of a server; expected http://HOST:PORT", USAGE)
        if not re.fullmatch("[!-~]*", key):
            raise CommandError("the API key must be letters, digits and signs of ASCII, without spaces", USAGE)
        self._secure = parts.scheme == "https"
        self._host = parts.hostname
        self._prefix = _VERSION_PREFIX.sub("", parts.path.rstrip("/"))
        self.url = f"{parts.scheme}://{parts.netloc}{self._prefix}"
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}

    def call(self, method: str, path: str, body: Any = None, seconds: float | None = ANSWER_SECONDS) -> Any:
        """Return the decoded answer; ``seconds`` without a byte are too long, ``None``: never."""
        with closing(self._connected()) as connection:
            response = self._ask(connection, method, path, body, seconds)
            return self._decoded(self._read(response))

    def stream(self, path: str, body: Any) -> Generator[ServerEvent]:
        """Yield the events of a stream as they come. Closing the iterator hangs up."""
        with closing(self._connected()) as connection:
            response = self._ask(connection, "POST", path, body, None)
            event, data = "", []
            while line := self._line(response):
                name, _, value = line.decode("utf-8", "replace").rstrip("\r\n").partition(":")
                value = value.removeprefix(" ")
                if name == "data":
                    data.append(value)
                elif name == "event":
                    event = value
                elif line in (b"\n", b"\r\n"):
                    if data:
                        yield ServerEvent(event or "message", "\n".join(data))
                    event, data = "", []

    def _connected(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=CONNECT_SECONDS)
        try:
            connection.connect()
        except OSError as problem:
            connection.close()
            reason = problem.strerror or str(problem) or "no answer"
            raise CommandError(f"cannot reach {self.url}: {reason}. Is the server running?", UNREACHABLE) from problem
        return connection

    def _ask(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: Any, seconds: float | None
    ) -> http.client.HTTPResponse:
        headers = {"Content-Type": "application/json", **self.headers}
        connection.sock.settimeout(seconds)
        try:
            connection.request(method, self._prefix + path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as problem:
            raise self._broken(problem) from problem
        if response.status >= 400:
            raise http_error(response.status, self._read(response), response.headers.get("Retry-After"))
        return response

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        try:
            return response.read()
        except (OSError, http.client.HTTPException) as problem:
            raise self._broken(problem) from problem

    def _line(self, response: http.client.HTTPResponse) -> bytes:
        try:
            return response.readline()
        except (OSError, http.client.HTTPException) as problem:
            raise self._broken(problem) from problem

    def _decoded(self, body: bytes) -> Any:
        try:
            return json.loads(body)
        except ValueError as problem:
            raise CommandError(f"{self.url} did not answer in JSON; is this a lemonbus server?") from problem

    def _broken(self, problem: Exception) -> CommandError:
        reason = "no answer in time" if isinstance(problem, TimeoutError) else "the connection broke off"
        return CommandError(f"{self.url}: {reason}")


def http_error(status: int, body: bytes, retry_after: str | None = None) -> CommandError:
    """Return the error that an answer means."""
    try:
        answer = json.loads(body)
    except ValueError:
        answer = {}
    message = _error_text(answer) or f"the server answered {status} {http.client.responses.get(status, '')}".rstrip()
    if retry_after:
        message += f"; try again in {retry_after} s"
    detail = last_lines(_error_facts(answer).get("detail"))
    if detail:
        message += "\nThe engine's last words:\n" + detail
    return CommandError(message, FORBIDDEN if status in (401, 403) else FAILED)


def stream_error(data: Any) -> CommandError | None:
    """Return the error that an event of a stream carries, if it carries one."""
    if isinstance(data, dict) and data.get("error"):
        return CommandError(_error_text(data) or "the stream failed")
    return None


def _error_text(answer: Any) -> str:
    """Return an error body's message, with its code and request id for those who must look into the logs."""
    if not isinstance(answer, dict):
        return ""
    error = answer.get("error")
    facts = _error_facts(answer)
    message = str(facts.get("message") or answer.get("message") or (error if isinstance(error, str) else ""))
    marks = [str(facts[key]) for key in ("code", "request_id") if facts.get(key)]
    if message and marks:
        message += f" ({', '.join(marks)})"
    return message


def _error_facts(answer: Any) -> dict[str, Any]:
    """Return the object that describes an error: the one under ``error``, or the whole body."""
    if not isinstance(answer, dict):
        return {}
    error = answer.get("error")
    return error if isinstance(error, dict) else answer


def last_lines(text: Any) -> str:
    """Return the last lines of what an engine wrote, indented; empty if it wrote nothing."""
    lines = text.strip().splitlines() if isinstance(text, str) else []
    return "\n".join(f"  {line}" for line in lines[-SHOWN_LINES:])
