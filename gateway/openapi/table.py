"""Combines the routes of the gateway with their families' declarations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from gateway.api.common.dialect import Dialect
from gateway.api.common.operations import Documentation, ErrorBody, Operation
from gateway.http.errors.error_formats import ErrorFormat
from gateway.openapi.document import DocumentedRoute, openapi_document
from gateway.openapi.responses import ErrorForm
from gateway.openapi.routes import DocumentResource, PageResource, RouteTable

OWN: Final = Documentation(
    "Server",
    "For process monitors and for people; no key is needed.",
    {
        DocumentResource: {"GET": Operation("This document.", answer=dict[str, Any])},
        PageResource: {"GET": Operation("A page that shows this document.", texts=("text/html",))},
    },
)


def document_of(table: RouteTable, *, keys: bool) -> bytes:
    """Return the JSON of the document; raises LookupError naming a route without a declaration."""
    return msgspec.json.encode(openapi_document(_documented(table), keys=keys))


def _documented(table: RouteTable) -> Iterator[DocumentedRoute]:
    for documentation, routes in (
        *((dialect.documentation(), routes) for dialect, routes in table.dialects),
        (OWN, table.own),
    ):
        for path, resource in routes.items():
            forms = [form for form in (table.formats.for_path(path), table.formats.sharing(path)) if form is not None]
            yield DocumentedRoute(path, resource, documentation, [ErrorForm(form, _error_of(form)) for form in forms])


def _error_of(form: ErrorFormat) -> type:
    return form.documentation().error if isinstance(form, Dialect) else ErrorBody
