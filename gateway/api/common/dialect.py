"""A dialect: one API family as an object.

A dialect has its routes (falcon resources), the form of its errors, and the paths below which errors have that form.
Most routes are declared (:mod:`gateway.api.common.routes`). Those that an engine answers are
:class:`~gateway.api.common.inference.inference_resource.InferenceResource`: they declare the type of their requests, and
translate a request into OpenAI's form and the answer back, streams with a
:class:`~gateway.api.common.inference.stream_writer.StreamWriter`. What else routes take and answer is declared in the
family's ``documentation.py``, from which the OpenAPI document is made.

A new dialect is a folder beside this one, and one line in ``gateway/app.py``.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Final

from gateway.api.common.operations import Documentation
from gateway.bus.session import SupervisorSession
from gateway.http.errors import ErrorFormat

VERSION_PREFIXES: Final = ("/v1", "/api/v1", "/v0", "/api/v0")
PREVIEW_PREFIXES: Final = ("/v0", "/api/v0")
"""Where Lemonade's preview has its own methods."""

Routes = dict[str, object]
"""Path → falcon resource. A path may have parameters: ``/models/{name}``."""


class Dialect(ErrorFormat, abc.ABC):
    """One API family. A subclass must be usable without arguments, and overrides what differs from the default form of errors."""

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
