"""A dialect: one API family as an object.

A dialect has its routes (falcon resources), the form of its errors, and the paths below which errors have that form.
The routes that an engine answers are :class:`~gateway.api.common.inference.inference_resource.InferenceResource`: they
translate a request into OpenAI's form and the answer back, streams with a
:class:`~gateway.api.common.inference.stream_writer.StreamWriter`. What all routes take and answer is declared in the
family's ``documentation.py``, from which the OpenAPI document is made.

A new dialect is a folder beside this one, and one line in ``gateway/app.py``.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Final

from gateway.api.common.operations import Documentation
from gateway.bus.session import SupervisorSession
from gateway.http.errors import error_body
from gateway.http.limit_headers import openai_limit_headers
from protocol.failures import Failure
from protocol.messages.work import RateLimits

VERSION_PREFIXES: Final = ("/v1", "/api/v1", "/v0", "/api/v0")
PREVIEW_PREFIXES: Final = ("/v0", "/api/v0")
"""Where Lemonade's preview has its own methods."""

Routes = dict[str, object]
"""Path → falcon resource. A path may have parameters: ``/models/{name}``."""


class Dialect(abc.ABC):
    """One API family. A subclass must be usable without arguments."""

    error_prefixes: ClassVar[tuple[str, ...]] = ()
    """Paths at and below which this dialect writes every error, also for unknown paths and refused requests.

    A path may lie below prefixes of several dialects; the longest prefix wins.
    """
    shared_error_prefixes: ClassVar[tuple[str, ...]] = ()
    """Paths at and below which this dialect's clients get its errors, unless another dialect has a longer prefix."""

    @property
    def name(self) -> str:
        """The dialect's name in metrics."""
        return type(self).__name__.removesuffix("Dialect").lower()

    @abc.abstractmethod
    def routes(self, session: SupervisorSession) -> Routes:
        """Return the routes; their resources ask ``session``."""

    @abc.abstractmethod
    def documentation(self) -> Documentation:
        """Return what the routes take and answer, for the OpenAPI document.

        Modules for this are imported only when it is called.
        """

    def is_client(self, _environ: Mapping[str, Any]) -> bool:
        """Return whether the headers in a WSGI environment come from a client of this dialect."""
        return False

    def error_status(self, failure: Failure) -> int:
        """Return the HTTP status of an error response."""
        return failure.http_status

    def error_body(self, failure: Failure, label: str, *, detail: bool = False) -> bytes:
        """Return the JSON body of an error response. By default, it has the form of OpenAI's and Lemonade's routes.

        ``label`` is the request id. ``detail``: whether to include ``failure.detail``, for an administrator.
        """
        return error_body(failure, label, detail=detail)

    def limit_headers(self, limits: RateLimits, now: datetime) -> dict[str, str]:
        """Return the headers about the limits of the caller's key. The default form is OpenAI's."""
        return openai_limit_headers(limits, now)


def versioned(routes: Mapping[str, object], preview: Mapping[str, object] | None = None) -> Routes:
    """Return the routes (without a leading slash) under all version prefixes.

    ``preview``: resources that answer under the prefixes of Lemonade's preview instead.
    """
    return {
        f"{prefix}/{path}": resource
        for prefix in VERSION_PREFIXES
        for path, resource in {**routes, **((preview or {}) if prefix in PREVIEW_PREFIXES else {})}.items()
    }


def endpoint_of(path: str) -> str:
    """Return a route's path without its version prefix, as in metrics: ``chat/completions``, ``models/{name}``."""
    prefix = next((prefix for prefix in VERSION_PREFIXES if path.startswith(f"{prefix}/")), "")
    return path[len(prefix) :].lstrip("/") or "/"
