"""Falcon middleware for every request: its id, CORS, admission, and the access check of ``gateway/access/``."""

from __future__ import annotations

from typing import Any

import falcon

from gateway.access.access_check import AccessCheck
from gateway.access.cors import CorsPolicy
from gateway.access.proxies import ProxyHeaders
from gateway.bus.session import SupervisorSession
from gateway.http.errors import ErrorFormats
from gateway.http.request_context import is_open, is_question, request_context
from gateway.server_clock import SERVER_CLOCK
from protocol.runtime import logs


class RequestIdentity:
    """Puts the request id into the log context and the response, and the route into the request's context."""

    def process_request(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Set both before the other middleware runs."""
        label = request_context(req.env).label
        logs.bind_request_id(label)
        resp.set_header("X-Request-ID", label)
        resp.set_header("request-id", label)  # where Anthropic's clients look for it

    def process_resource(
        self, req: falcon.Request, _resp: falcon.Response, _resource: object, _params: dict[str, Any]
    ) -> None:
        """Note the route: metrics count by it."""
        request_context(req.env).route = req.uri_template or ""


class Cors:
    """Sets the CORS headers, and answers preflights."""

    def __init__(self, policy: CorsPolicy) -> None:
        """Allow what ``policy`` allows."""
        self._policy = policy

    def process_request(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Set the headers. A preflight ends here."""
        for name, value in self._policy.headers(req.env.get("HTTP_ORIGIN", "")).items():
            resp.set_header(name, value)
        if req.method != "OPTIONS":
            return
        resp.set_headers(self._policy.preflight_headers(req.get_header("Access-Control-Request-Headers") or ""))
        resp.status = falcon.HTTP_204
        resp.complete = True


class AdmissionCheck:
    """Refuses new requests while the server starts or stops, except for questions about a server that stops."""

    def __init__(self, session: SupervisorSession) -> None:
        """Read the state of ``session``."""
        self._session = session

    def process_request(self, req: falcon.Request, _resp: falcon.Response) -> None:
        """Raise the failure of the present state."""
        if not is_open(req.path, req.env):
            self._session.admission.admit(question=is_question(req.method))


class LimitHeaders:
    """Writes the headers about the queue and, in the form of the request's API family, about the limits of the caller's key."""

    def __init__(self, formats: ErrorFormats) -> None:
        """Use the forms in ``formats``."""
        self._formats = formats

    def process_response(
        self, req: falcon.Request, resp: falcon.Response, _resource: object, _req_succeeded: bool
    ) -> None:
        """Write them, if the supervisor reported any for this request."""
        exchange = request_context(req.env).exchange
        if exchange is None:
            return
        if exchange.queue_status is not None:
            resp.set_header("X-Queue-Position", str(exchange.queue_status.position))
            resp.set_header("X-Queue-Wait", f"{exchange.queue_status.wait_s:.3f}")
        if exchange.warning:
            resp.set_header("Warning", f'299 lemonbus "{exchange.warning}"')
        if exchange.rate_limits is not None:
            form = self._formats.for_request(req.path, req.env)
            resp.set_headers(form.limit_headers(exchange.rate_limits, SERVER_CLOCK.date()))


class UnusedReservations:
    """Ends the reservation of a request that failed before it was sent."""

    def process_response(
        self, req: falcon.Request, _resp: falcon.Response, _resource: object, _req_succeeded: bool
    ) -> None:
        """End it. If the inference request was sent, it has taken the reservation over."""
        context = request_context(req.env)
        if context.reservation is not None:
            context.drop_reservation()


def create_middleware(session: SupervisorSession, formats: ErrorFormats, cors: CorsPolicy) -> list[Any]:
    """Return all middleware, in order. ``formats``: the forms of the API families."""
    settings = session.settings
    access = AccessCheck(settings)
    session.on_setting_keys = access.keys.use_setting_keys
    return [
        RequestIdentity(),
        ProxyHeaders(settings.trusted_proxies),
        Cors(cors),
        access,
        AdmissionCheck(session),
        LimitHeaders(formats),
        UnusedReservations(),
    ]
