"""A route as one declaration: its name, its request, what it does, and its answer.

Everything else is derived from it: the resource that answers (:mod:`gateway.api.common.route_resource`), the checks of
the request, the scope that a key needs, the operation in the OpenAPI document, and the command line's call. The command
line imports the files with declarations, so they import no library of the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, get_args, get_type_hints

import msgspec

from gateway.api.common.operations import Operation
from gateway.api.common.request_fields import named_as_sent
from protocol.config.api_keys import Scope
from protocol.failures import LemonbusError

if TYPE_CHECKING:
    from gateway.api.common.progress_events import ProgressWriter
    from gateway.bus.session import SupervisorSession
    from gateway.http.request_context import RequestContext

R = TypeVar("R")
Asked = TypeVar("Asked", bound=msgspec.Struct)
Answered = TypeVar("Answered")


class HttpCaller:
    """Who sent a request, and what its handler may ask."""

    def __init__(
        self, session: SupervisorSession, env: dict[str, Any], context: RequestContext, fields: dict[str, Any]
    ) -> None:
        """``env``: the WSGI environment of the request."""
        self.session = session
        self.env = env
        self.context = context
        self.fields = fields
        """The request as it was sent, including null fields and fields that its type does not declare."""

    def ask(self, build: Callable[[int], msgspec.Struct], report: type[R]) -> R:
        """Ask the supervisor, and wait: ``ask(lambda number: GetModel(number, name), ModelEntry)``.

        Raises its refusal, which names the wrong field by its name in the request.
        """
        try:
            return self.session.call(self.env, build, report)
        except LemonbusError as problem:
            raise named_as_sent(problem, self.fields) from None


class Progressing(NamedTuple):
    """The answer of a handler that is a stream of progress."""

    build: Callable[[int], msgspec.Struct]
    """Makes the call to the supervisor."""
    writer: ProgressWriter


class Content(NamedTuple):
    """The answer of a handler that is not JSON: a text, or a stream of pieces."""

    media_type: str
    body: bytes | Iterable[bytes]


class Nothing(msgspec.Struct):
    """A request without fields: a body or a query, if there is one, is not read."""


class Route(msgspec.Struct, Generic[Asked, Answered], frozen=True, kw_only=True, eq=False):
    """One HTTP method of one path; :func:`route` makes it from a handler."""

    method: str
    path: str
    request: type[Asked]
    """Its fields are those of the JSON body; for GET and for paths with parameters, those of path and query.

    With a ``body`` of its own, a path with parameters has the fields of both.
    """
    handler: Callable[[HttpCaller, Asked], Answered]
    """Returns the answer, or raises a failure."""
    operation: Operation
    """The route in the OpenAPI document."""
    changes: bool = False
    """Whether it changes the server, or shows what only an administrator may see."""
    action: str = "change the server"
    """What a foreign page may not do with it, in words."""
    monitors: bool = False
    """Whether monitors use it: a key for metrics suffices."""
    private: bool = False
    """Whether it is about what clients have stored: without keys, pages of other sites may not use it."""
    scope: Scope | None = None
    """The scope that a key needs. None means inference for a GET that changes nothing, otherwise admin."""
    also: tuple[str, ...] = ()
    """Its other paths."""
    secret: bool = False
    """Whether no cache may store the answer."""
    status_of: Callable[[Any], int] | None = None
    """Returns the status of an answer; None: it is 200. The others are ``other_statuses`` of the operation."""

    @property
    def has_body(self) -> bool:
        """Whether the fields of the request are those of its body and path, not of its path and query."""
        return self.operation.body is not None


def route(
    method: str, path: str, **about: Any
) -> Callable[[Callable[[HttpCaller, Asked], Answered]], Route[Asked, Answered]]:
    """Declare the handler below as a route: its annotations are the request and the answer, its docstring begins with the summary.

    ``path``: such as ``/internal/reload``; without its first slash it is below each version prefix: ``pin``. ``about``: the other
    fields of :class:`Route` and of its :class:`~gateway.api.common.operations.Operation`; ``answer`` among them if the handler
    returns JSON that another process has written.
    """
    documented = {name: value for name, value in about.items() if name in Operation._fields}
    others = {name: value for name, value in about.items() if name not in Operation._fields}

    def declared(handler: Callable[[HttpCaller, Asked], Answered]) -> Route[Asked, Answered]:
        _, request, answers = get_type_hints(handler).values()
        several = get_args(answers) if isinstance(answers, UnionType) else [answers]
        kinds = tuple(each for each in several if each not in (Progressing, Content, NoneType))
        has_body = "body" in documented or (method != "GET" and "{" not in path and request is not Nothing)
        derived = {
            "summary": (handler.__doc__ or "").partition("\n")[0],
            "answer": None if not kinds else kinds if len(kinds) > 1 else kinds[0],
            **({"body": request} if has_body else {"query": request, "path_parameters": request}),
        }
        operation = Operation(**{**derived, **documented})
        return Route(method=method, path=path, request=request, handler=handler, operation=operation, **others)

    return declared
