"""The HTTP client of the command line: calls and streams, and all their failures as one error with an exit code."""

from __future__ import annotations

import http
import json
import os
import re
import ssl
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import msgspec
import requests
from urllib3 import exceptions as urllib3_errors

from gateway.cli.exit_codes import FAILED, FORBIDDEN, UNREACHABLE, USAGE, CommandError
from protocol.failures import Code

if TYPE_CHECKING:  # a command that asks no declared route starts faster
    from gateway.api.common.routes import Answered, Asked, Route

CONNECT_TIMEOUT_S: Final = 5.0
READ_TIMEOUT_S: Final = 30.0
KEY_HINT: Final = "\nThe commands send the key in LEMONBUS_ADMIN_API_KEY, or else that in LEMONBUS_API_KEY."
MODELS_HINT: Final = "; `lemonbus list --all` shows the models"
SHOWN_LINES: Final = 10
"""How many lines of an engine's output an error shows."""
_VERSION_PREFIX: Final = re.compile(r"(/api)?/v[01]$")
_OF_PROXIES: Final = frozenset({502, 503, 504})
"""Statuses of a proxy whose server is away."""
_NO_CONNECTION: Final = (
    urllib3_errors.NewConnectionError,
    urllib3_errors.ConnectTimeoutError,
    urllib3_errors.SSLError,
)
"""Why a request failed before anything was sent."""


class ServerEvent(NamedTuple):
    """One server-sent event."""

    event: str
    data: str


class ApiClient:
    """One lemonbus server."""

    def __init__(
        self, url: str, key: str = "", check: Callable[[str], None] | None = None, *, weaker_key: str = ""
    ) -> None:
        """Connect to ``url``, with or without a version prefix such as ``/v1``; raises ``CommandError`` for a wrong one.

        ``check`` is asked before the key is sent there, and raises ``CommandError`` if it must not be.
        ``weaker_key``: one without the scope admin, if there is one.
        """
        try:
            parts = urlsplit(url)
            _ = parts.port
        except ValueError as problem:
            raise CommandError(f"{url}: {problem}", USAGE) from problem
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise CommandError(f"{url!r} is not the address of a server; expected http://HOST:PORT", USAGE)
        if not re.fullmatch("[!-~]*", key):
            raise CommandError("the API key may contain only printable ASCII characters, and no spaces", USAGE)
        prefix = _VERSION_PREFIX.sub("", parts.path.rstrip("/"))
        self.url = f"{parts.scheme}://{parts.netloc}{prefix}"
        self._key, self._check, self._weaker_key = key, check, weaker_key

    @property
    def inference_key(self) -> str:
        """The key for a program that only uses models; empty if there is none."""
        return self._weaker_key or self._key

    @property
    def key_is_for_administrators(self) -> bool:
        """Whether :attr:`inference_key` may be that of an administrator, because no other is known."""
        return bool(self._key) and not self._weaker_key

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request that is sent now; raises ``CommandError`` if the key must not be."""
        if self._key and self._check is not None:
            self._check(self.url)
        return {"Authorization": f"Bearer {self._key}"} if self._key else {}

    def ask(
        self,
        route: Route[Asked, Answered],
        request: Asked,
        seconds: float | None = READ_TIMEOUT_S,
        more: dict[str, Any] | None = None,
    ) -> Answered:
        """Return what a route answers; ``seconds`` as for :meth:`call`. ``more``: fields that the request's type does not declare."""
        path, body = _address(route, request, more)
        found: Answered = self.decoded(self.call(route.method, path, body, seconds), route.operation.answer)
        return found

    def follow(self, route: Route[Asked, Any], request: Asked, seconds: float | None = None) -> Generator[ServerEvent]:
        """Yield the events of a route's stream, as :meth:`stream` does. ``seconds`` as for :meth:`call`."""
        return self.stream(*_address(route, request), route.method, seconds)

    def decoded(self, answer: Any, kind: Any) -> Any:
        """Return an answer as the declared type ``kind``."""
        try:
            return msgspec.convert(answer, kind)
        except msgspec.ValidationError as problem:
            reason = f"{self.url} answered in an unexpected form; is it another release of lemonbus? {problem}"
            raise CommandError(reason) from problem

    def call(self, method: str, path: str, body: Any = None, seconds: float | None = READ_TIMEOUT_S) -> Any:
        """Return the decoded answer. ``seconds``: how long to wait without a byte; ``None``: no limit."""
        with self._request(method, path, body, seconds) as response:
            content = self._content(response)
        try:
            return json.loads(content)
        except ValueError as problem:
            raise CommandError(f"{self.url} did not answer in JSON; is this a lemonbus server?") from problem

    def stream(
        self, path: str, body: Any, method: str = "POST", seconds: float | None = None
    ) -> Generator[ServerEvent]:
        """Yield the events of a stream as they come. Closing the iterator hangs up.

        A stream that breaks ends the iteration: the caller knows what the last event must be.
        """
        with self._request(method, path, body, seconds) as response:
            event, data = "", []
            for line in _lines(response):
                name, _, value = line.decode("utf-8", "replace").rstrip("\r").partition(":")
                value = value.removeprefix(" ")
                if name == "data":
                    data.append(value)
                elif name == "event":
                    event = value
                elif not name and not value:
                    if data:
                        yield ServerEvent(event or "message", "\n".join(data))
                    event, data = "", []

    def download(self, path: str, body: Any) -> Generator[bytes]:
        """Yield the bytes of an answer as they come; raises ``CommandError`` if it ends before it is whole. Closing the iterator hangs up."""
        with self._request("POST", path, body, None) as response:
            try:
                yield from response.iter_content(None)
            except requests.RequestException as problem:
                raise CommandError(
                    "the answer broke off: a part of it is missing; the server's log says why"
                ) from problem

    @contextmanager
    def _request(self, method: str, path: str, body: Any, seconds: float | None) -> Iterator[requests.Response]:
        """Send a request. The response has a status below 400, and its body has not been read."""
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", **self.headers}
        with requests.Session() as session:
            # No proxy and no .netrc: the server is given, and the key is ours.
            session.trust_env = False
            paths = ssl.get_default_verify_paths()
            session.verify = os.environ.get("REQUESTS_CA_BUNDLE") or paths.cafile or paths.capath or True
            try:
                response = session.request(
                    method,
                    self.url + path,
                    data=None if body is None else json.dumps(body),
                    headers=headers,
                    timeout=(CONNECT_TIMEOUT_S, seconds),
                    stream=True,
                    allow_redirects=False,
                )
            except requests.RequestException as problem:
                raise self._error(problem) from problem
            with response:
                if response.status_code >= 400:
                    raise http_error(response.status_code, self._content(response), response.headers.get("Retry-After"))
                yield response

    def _content(self, response: requests.Response) -> bytes:
        try:
            return bytes(response.content)
        except requests.RequestException as problem:
            raise self._error(problem) from problem

    def _error(self, problem: requests.RequestException) -> CommandError:
        cause = problem.args[0] if problem.args else None
        reason = getattr(cause, "reason", cause)
        if isinstance(reason, _NO_CONNECTION):
            why = _os_error_text(reason) or "no answer"
            return CommandError(f"cannot reach {self.url}: {why}. Is the server running?", UNREACHABLE)
        late = isinstance(problem, requests.Timeout) or isinstance(reason, urllib3_errors.ReadTimeoutError)
        return CommandError(f"{self.url}: {'no answer in time' if late else 'the connection broke off'}")


def _address(
    route: Route[Asked, Answered], request: Asked, more: dict[str, Any] | None = None
) -> tuple[str, dict[str, Any] | None]:
    """Return the path of a request, with its query, and its body; raises CommandError if ``more`` has a field of the request."""
    fields = {name: value for name, value in msgspec.to_builtins(request).items() if value is not None}
    if twice := fields.keys() & (more or {}):
        raise CommandError(f"{', '.join(sorted(twice))} cannot be given as an option", USAGE)
    fields |= more or {}
    path = route.path if route.path.startswith("/") else f"/v1/{route.path}"
    path = path.replace(":path}", "}")  # a name that may have slashes, which are escaped below like all else
    in_path = {name for name in fields if f"{{{name}}}" in path}
    path = path.format_map({name: quote(fields.pop(name), safe="") for name in in_path})
    if route.has_body:
        return path, fields
    query = urlencode({name: _in_query(value) for name, value in fields.items()}, safe="/")
    return f"{path}?{query}" if query else path, None


def _in_query(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _lines(response: requests.Response) -> Iterator[bytes]:
    """Yield the lines of a body as they come, without line ends; stops where the connection breaks."""
    rest = b""
    # A body that is not chunked has to be read byte by byte: a larger read would wait until its buffer is full.
    size = None if response.headers.get("Transfer-Encoding", "").lower() == "chunked" else 1
    try:
        for piece in response.iter_content(size):
            *lines, rest = (rest + piece).split(b"\n")
            yield from lines
    except requests.RequestException:
        return


def _os_error_text(problem: BaseException | None) -> str:
    """Return the operating system's reason for a failure, empty if it gave none."""
    while problem is not None:
        if isinstance(problem, OSError) and problem.strerror:
            return str(problem.strerror)
        problem = problem.__cause__ or problem.__context__
    return ""


def http_error(status: int, body: bytes, retry_after: str | None = None) -> CommandError:
    """Return the error in an error response."""
    try:
        answer = json.loads(body)
    except ValueError:
        answer = {}
    message = _error_text(answer) or f"the server answered {status} {_phrase(status)}".rstrip() + (
        "" if status in _OF_PROXIES else "; is this a lemonbus server?"
    )
    if _error_facts(answer).get("code") == Code.MODEL_NOT_FOUND:
        message += MODELS_HINT
    if retry_after:
        message += f"; try again in {retry_after} s"
    detail = last_lines(_error_facts(answer).get("detail"))
    if detail:
        message += "\nDetails:\n" + detail
    # A hub that refuses the server has nothing to do with the caller's key.
    our_key = status in (401, 403) and _error_facts(answer).get("code") != Code.CHECKPOINT_FORBIDDEN
    if our_key and status == 401:
        message += KEY_HINT
    return CommandError(message, FORBIDDEN if our_key else FAILED, status, _error_facts(answer))


def _phrase(status: int) -> str:
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return ""


def stream_error(data: Any) -> CommandError | None:
    """Return the error in an event of a stream, None if there is none."""
    if isinstance(data, dict) and data.get("error"):
        return CommandError(_error_text(data) or "the stream failed", facts=_error_facts(data))
    return None


def _error_text(answer: Any) -> str:
    """Return an error body's message, with its code and the request id to search the logs for."""
    facts = _error_facts(answer)
    if not facts:
        return ""
    error = answer.get("error")
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
    """Return the last lines of an engine's output, indented; empty if there are none."""
    lines = text.strip().splitlines() if isinstance(text, str) else []
    return "\n".join(f"  {line}" for line in lines[-SHOWN_LINES:])
