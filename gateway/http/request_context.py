"""One HTTP request as logs and errors know it: its id, its model, when it began, how to end its connection."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import msgspec

from gateway.http.body_memory import HeldBody
from protocol import ids
from protocol.config.api_keys import ApiKey
from protocol.failures import Code, Failure
from protocol.messages.caller import Caller, RateLimits
from protocol.messages.events import Outcome
from protocol.messages.work import QueueStatus

CONTEXT_KEY: Final = "lemonbus.request"
"""Key of the :class:`RequestContext` in the WSGI environment."""
SOCKET_KEY: Final = "lemonbus.socket"
"""Key of the connection's :class:`~gateway.http.connections.client_socket.ClientSocket`; absent without one (tests)."""
MEMORY_KEY: Final = "lemonbus.body_memory"
"""Key of the process's :class:`~gateway.http.body_memory.BodyMemory`; absent where nothing is counted (tests)."""
REQUEST_ID_KEY: Final = "HTTP_X_REQUEST_ID"
LIVENESS_PATHS: Final = ("/live", "/livez", "/healthz")
"""Paths of the probe of one process: ours, and those that Kubernetes' own components have."""
_PROBE_PATHS: Final = (*LIVENESS_PATHS, "/health", "/readyz")
OPEN_PATHS: Final = frozenset({*_PROBE_PATHS, "/openapi.json", "/docs"})
"""Paths that are answered without a key, even while the server starts or stops."""
PAGE_FILES: Final = "/page/"
"""Below it are the files of the pages for browsers, which are answered in the same way."""
_MONITORING_PATHS: Final = (*_PROBE_PATHS, "/logs/stream", "/metrics")
_MAX_DETAIL_LENGTH: Final = 400
"""Characters of a detail in the log. An engine's last output is also in its worker's line, and its end says most."""
_EXPECTED: Final = frozenset({Code.STARTING, Code.DRAINING, Code.DRAINED, Code.BATCH_WAITS, Code.UNSUPPORTED})
"""Refusals with 5xx in which nothing failed."""


def is_monitoring(path: str) -> bool:
    """Return whether monitors ask for this path again and again."""
    return path.rstrip("/").endswith(_MONITORING_PATHS)


def is_question(method: str) -> bool:
    """Return whether a request with this HTTP method only asks, and changes nothing."""
    return method in ("GET", "HEAD")


def _never() -> bool:
    """Return False: the caller was not checked."""
    return False


def _refuse(action: str) -> None:
    """Raise ``forbidden``: the caller was not checked."""
    raise Failure(Code.FORBIDDEN, f"this request may not {action}").raised()


def _no_connection() -> None:
    """Do nothing: there is no connection (tests)."""


def never_withdrawn(_model: str) -> Failure | None:
    """Return None: nothing was admitted that could be withdrawn."""
    return None


class Exchange(Protocol):
    """The parts of an inference request on the bus that the headers of its response depend on."""

    rate_limits: RateLimits | None
    """The remaining limits of the caller's key; None if it has no limits."""
    queue_status: QueueStatus | None
    """Its position in the queue when it came; None if it was granted at once."""

    @property
    def warning(self) -> str:
        """A part of it that has no effect; empty: none is known."""


class Reservation(Protocol):
    """An inference request that the supervisor has counted before it comes (``gateway/requests/request_session.py``)."""

    number: int

    def close(self) -> None:
        """End it: the supervisor no longer counts it as a running request."""


class RequestContext(msgspec.Struct, eq=False):
    """State of one request besides its WSGI environment; :func:`request_context` returns it."""

    label: str
    """The request id: in the response header, the log and error bodies. Never a key."""
    started: float = msgspec.field(default_factory=time.monotonic)
    model: str = ""
    """The model's name, as soon as it is known. The API family sets it for the log line."""
    route: str = ""
    """The template of the matching route; empty before that, and for unknown paths."""
    inference: str = ""
    """The endpoint of the internal format that an engine was asked for; empty if none was, or only for its state."""
    outcome: Outcome | None = None
    """What its generation cost, if it ended."""
    answered: bool = False
    """Whether an engine has completed the whole answer, so that its worker counts the request."""
    failure: Failure | None = None
    """The failure in the answer, if any."""
    in_background: bool = False
    """Whether it goes on without its connection, and is counted as a failure only if it fails there."""
    api_key: ApiKey | None = None
    """The caller's key; None if the server has no keys."""
    keys_needed: bool = False
    """Whether the server has keys."""
    batch: bool = False
    """Whether it is a line of a batch, which the server itself sends as the batch's owner."""
    exchange: Exchange | None = None
    """What the supervisor reported about an inference request; None for all others."""
    reservation: Reservation | None = None
    """The reservation of the inference request that it will become; None before it was made, and once that request was sent."""
    check_admin: Callable[[], bool] = _never
    """Returns whether the caller's key has the admin scope or, without keys, whether it is a local program or page."""
    check_change: Callable[[str], None] = _refuse
    """Raises ``forbidden`` if the caller may not change the server's state. Takes the words for the change.

    For resources where only some requests change it. A resource where all do names its methods in ``changes``.
    """
    withdrawal: Callable[[str], Failure | None] = never_withdrawn
    """Returns why an admitted request may not go on: for example, its key was revoked.

    Takes the registered name of the model that it uses, empty if unknown.
    """
    download_refusal: str = ""
    """Why no download may start for an inference request whose model is not on this machine; empty: one may."""
    held_body: HeldBody | None = None
    """What of its body counts against the process's body memory; None before any was received."""
    last: bool = False
    """Set by a streaming body before it returns its last piece, so that the end of the response goes with it."""
    close_after: Callable[[], None] = _no_connection
    """Makes the connection close after this response, whatever its header said."""
    hand_over: Callable[[], None] = _no_connection
    """For WebSockets: the server writes nothing more, and closes the connection when the responder returns."""

    @property
    def caller(self) -> Caller | None:
        """What the supervisor has to know about the key, for its counters and limits; None without keys."""
        return Caller.of(self.api_key) if self.api_key is not None else None

    def may_use(self, model: str) -> bool:
        """Return whether the caller's key may use a model, given by its registered name."""
        return self.api_key is None or self.api_key.may_use(model)

    @property
    def models(self) -> list[str]:
        """Patterns of the models that the caller's key may use; empty: all models."""
        return self.api_key.models if self.api_key is not None else []

    @property
    def is_admin(self) -> bool:
        """Whether answers may show an engine's last output."""
        return self.check_admin()

    @property
    def waits_for_slot(self) -> bool:
        """Whether it is a line of a batch that is sent again later: not a failure, and not worth counting."""
        return self.failure is not None and self.failure.code is Code.BATCH_WAITS

    def check_access(self) -> None:
        """If the request may not go on, raise the reason."""
        if failure := self.withdrawal(""):
            raise failure.raised()

    def take_reservation(self) -> Reservation | None:
        """Return the reservation to its new owner, who closes it."""
        reservation, self.reservation = self.reservation, None
        return reservation

    def drop_reservation(self) -> None:
        """End the reservation if no request took it over."""
        reservation = self.take_reservation()
        if reservation is not None:
            reservation.close()

    def elapsed(self) -> float:
        """Return the seconds since the request came."""
        return time.monotonic() - self.started

    def release_connection(self) -> None:
        """Drop the references to connection and request: they would keep each other alive."""
        self.close_after = self.hand_over = _no_connection
        self.exchange = None
        self.check_admin = _never
        self.check_change = _refuse
        self.withdrawal = never_withdrawn

    def level(self, path: str) -> str:
        """Return the level of the request's log line: for our own failures, for normal requests, or for a monitor's and a page's files."""
        if self.failure is not None and self.failure.http_status >= 500 and self.failure.code not in _EXPECTED:
            return "warning"
        return "debug" if self.waits_for_slot or is_monitoring(path) or path.startswith(PAGE_FILES) else "info"

    def log_fields(self) -> dict[str, Any]:
        """Return the fields of its log line that only the application knows."""
        fields: dict[str, Any] = {"model": self.model} if self.model else {}
        if self.api_key is not None:
            fields["key"] = self.api_key.name
        if self.outcome is not None and self.inference:
            fields |= self.outcome.figures()
        if self.failure is not None:
            fields |= {"code": self.failure.code.value, "reason": self.failure.loggable_message}
            if self.failure.detail:
                fields["detail"] = self.failure.detail[-_MAX_DETAIL_LENGTH:]
        return fields


def accepts_page(env: Mapping[str, Any]) -> bool:
    """Return whether the client of a WSGI environment asks for a page to show to a person."""
    return "text/html" in env.get("HTTP_ACCEPT", "")


def is_open(path: str, env: Mapping[str, Any]) -> bool:
    """Return whether a request for this path is answered without a key, even while the server starts or stops."""
    return path in OPEN_PATHS or path.startswith(PAGE_FILES) or (path == "/" and accepts_page(env))


def is_browser(env: Mapping[str, Any]) -> bool:
    """Return whether the client of a WSGI environment says that it is a browser.

    Every browser does, and no page can prevent it.
    """
    return "mozilla/" in env.get("HTTP_USER_AGENT", "").lower()


def request_context(env: dict[str, Any]) -> RequestContext:
    """Return the context of a WSGI environment (``req.env``). Makes one if necessary."""
    try:
        context: RequestContext = env[CONTEXT_KEY]
    except KeyError:
        context = env[CONTEXT_KEY] = RequestContext(ids.request_label(env.get(REQUEST_ID_KEY)))
    return context


def client_of(env: dict[str, Any]) -> str:
    """Return whose request it is, where clients share something: its key's name, or its address if the server has no keys."""
    key = request_context(env).api_key
    return key.name if key is not None else str(env.get("REMOTE_ADDR", ""))
