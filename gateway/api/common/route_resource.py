"""Falcon's side of declared routes: reads and checks a request, calls the route's handler, and writes the answer."""

from __future__ import annotations

from functools import cache, partial
from types import ModuleType
from typing import Any, Final

import falcon
import msgspec

from gateway.api.common.dialect import VERSION_PREFIXES, Routes
from gateway.api.common.progress_events import stream_progress
from gateway.api.common.request_fields import named_as_sent
from gateway.api.common.routes import Content, HttpCaller, Progressing, Route
from gateway.bus.session import SupervisorSession
from gateway.http.bodies import body_decoding
from gateway.http.request_context import client_of, request_context
from gateway.http.stream_headers import set_stream
from protocol.failures import LemonbusError, invalid

_FLAGS: Final = {"": "true", "yes": "true", "on": "true", "no": "false", "off": "false"}
"""Words for flags in a query, in addition to msgspec's."""


class RouteResource:
    """The routes of one path, one for each HTTP method."""

    def __init__(self, session: SupervisorSession, routes: list[Route[Any, Any]]) -> None:
        """Let handlers ask ``session``."""
        self.session = session
        self.changes = frozenset(route.method for route in routes if route.changes)
        self.action = next((route.action for route in routes if route.changes), "")
        self.scopes = {route.method: route.scope for route in routes if route.scope is not None}
        self.private = any(route.private for route in routes)
        self.monitors = any(route.monitors for route in routes)
        self.operations = {route.method: route.operation for route in routes}
        for route in routes:
            setattr(self, f"on_{route.method.lower()}", partial(self._respond, route))

    def _respond(self, route: Route[Any, Any], req: falcon.Request, resp: falcon.Response, **path: str) -> None:
        given = self.body(req) if route.has_body else _query(req, route.request)
        self.respond(route, {**given, **path}, req, resp)

    def body(self, req: falcon.Request) -> dict[str, Any]:
        """Return the JSON object in the body of a request, which is empty for an empty body."""
        data = body_decoding.read_optional_json(req, self.session.settings.body_limit)
        return body_decoding.decode_object(data, client_of(req.env))

    def respond(
        self, route: Route[Any, Any], given: dict[str, Any], req: falcon.Request, resp: falcon.Response
    ) -> None:
        """Answer the request with the fields ``given``, which are texts if they are not from a body. Raises what is wrong with it."""
        request = body_decoding.convert(given, route.request, strict=route.has_body)
        _check_texts(request)
        answer = route.handler(HttpCaller(self.session, req.env, request_context(req.env), given), request)
        if isinstance(answer, Progressing):
            try:
                stream_progress(self.session, req, resp, answer.build, answer.writer)
            except LemonbusError as problem:
                raise named_as_sent(problem, given) from None
            return
        if isinstance(answer, Content):
            _send(answer, resp)
        elif answer is not None:
            resp.content_type = falcon.MEDIA_JSON
            resp.data = msgspec.json.encode(answer)
        if route.secret:
            resp.cache_control = ["no-store"]
        if route.status_of is not None:
            resp.status = falcon.code_to_http_status(route.status_of(answer))


def _send(content: Content, resp: falcon.Response) -> None:
    if isinstance(content.body, bytes):
        resp.content_type = content.media_type
        resp.data = content.body
        return
    set_stream(resp, content.body, content.media_type)


def _query(req: falcon.Request, cls: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the parameters that a type declares, as texts."""
    found: dict[str, Any] = {}
    for name, is_flag in _parameters(cls):
        text = req.get_param(name)
        found[name] = _FLAGS.get(text.lower(), text) if text is not None and is_flag else text
    return found


@cache  # msgspec looks up the types of fields each time, which takes longer than the rest of a small GET
def _parameters(cls: type[msgspec.Struct]) -> list[tuple[str, bool]]:
    """Return the names of a type's fields, and whether each is a flag."""
    return [(field.name, field.type is bool) for field in msgspec.structs.fields(cls)]


def _check_texts(request: msgspec.Struct) -> None:
    for field, value in msgspec.structs.asdict(request).items():
        if isinstance(value, str) and "\0" in value:
            raise invalid(f"`{field}` must not contain NUL", field)


def _paths(route: Route[Any, Any]) -> list[str]:
    """Return all paths of a route. A declared path without its first slash is below each version prefix."""
    given = (route.path, *route.also)
    whole = [path for path in given if path.startswith("/")]
    return whole + [f"{prefix}/{path}" for prefix in VERSION_PREFIXES for path in given if path not in whole]


def resources(session: SupervisorSession, *modules: ModuleType) -> Routes:
    """Return a resource for each path of the routes that these modules declare: the same one for paths with the same routes."""
    by_path: dict[str, list[Route[Any, Any]]] = {}
    for module in modules:
        for route in vars(module).values():
            if isinstance(route, Route):
                for path in _paths(route):
                    by_path.setdefault(path, []).append(route)
    found = {tuple(routes): RouteResource(session, routes) for routes in by_path.values()}
    return {path: found[tuple(routes)] for path, routes in by_path.items()}
