"""Makes the OpenAPI 3.1 document from the routes and their families' declarations. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import falcon
import msgspec

from gateway.access.scopes import needed_scope
from gateway.api.common.dialect import Dialect, endpoint_of
from gateway.api.common.operations import Documentation, ErrorBody, Operation
from gateway.http.errors import ErrorFormat
from gateway.http.request_context import OPEN_PATHS, PAGE_FILES
from gateway.openapi.components import COMMON_HEADERS, ErrorForm, ErrorResponses, Schemas, answers
from gateway.openapi.routes import DocumentResource, RouteTable
from gateway.page.resources import DocsResource, FileResource, RootResource
from protocol import RELEASE

ALIAS_OF: Final = "x-alias-of"
"""Marks a path with another path that has the same operations.

It is not a reference: few tools for such documents follow one here.
"""
_CONVERTER: Final = re.compile(r"{(\w+)(?::\w+)?}")
_NOT_IN_IDS: Final = re.compile(r"[^A-Za-z0-9]+")
_ABOUT: Final = """One HTTP address for every local model of this machine.

Every route below `/v1` answers in the same way below `/api/v1`, `/v0` and `/api/v0`; where the last two differ, they are described
alone. GET routes answer HEAD. Every response has the id of its request in `X-Request-ID`. Fields that are not described are passed on
to the engine or ignored. A request that names no model gets the default model, or the one used last."""


class DocumentedRoute(NamedTuple):
    """One route of the gateway."""

    path: str
    resource: object
    documentation: Documentation
    error_forms: list[ErrorForm]
    """The forms of its errors: several if families share a path."""


def openapi_document(routes: Iterable[DocumentedRoute], *, keys: bool) -> dict[str, Any]:
    """Return the document; raises LookupError naming a route without a declaration.

    ``keys``: whether callers need an API key.
    """
    routes = list(routes)
    parts = _Parts(schemas := Schemas(), ErrorResponses(schemas), keys)
    paths: dict[str, dict[str, Any]] = {}
    first_paths: dict[tuple[int, str], str] = {}
    for route in routes:
        for path, item in _path_items(route, parts):
            endpoint = endpoint_of(path)
            versioned = endpoint != path.lstrip("/")
            first = first_paths.setdefault((id(route.resource), endpoint), path) if versioned else path
            paths[path] = item if first == path else {ALIAS_OF: first, **item}
    names = {route.documentation.name: route.documentation.description for route in routes}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "lemonbus",
            "version": RELEASE,
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": description} for name, description in names.items()],
        **({"security": [{"bearer": []}, {"x-api-key": []}]} if keys else {}),
        "paths": paths,
        "components": {
            "schemas": schemas.components(),
            "responses": parts.errors.components(),
            "headers": COMMON_HEADERS,
            **({"securitySchemes": _SECURITY_SCHEMES} if keys else {}),
        },
    }


_SECURITY_SCHEMES: Final = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key: `Authorization: Bearer KEY`."},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "The same key."},
}


class _Parts(NamedTuple):
    """The common part of all operations."""

    schemas: Schemas
    errors: ErrorResponses
    keys: bool


def _path_items(route: DocumentedRoute, parts: _Parts) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the paths of a route. Most have one, with all its methods."""
    declared = route.documentation.of(route.resource)
    items: dict[str, dict[str, Any]] = {}
    for method in _methods(route.resource):
        if method not in declared:
            raise LookupError(f"{method} {route.path}: {type(route.resource).__name__} has no documented operation")
        operation = declared[method]
        path = _CONVERTER.sub(r"{\1}", route.path)
        if operation.shown_path:
            path = route.path.removesuffix(endpoint_of(route.path)) + operation.shown_path
        items.setdefault(path, {})[method.lower()] = _operation(route, path, method, operation, parts)
    yield from items.items()


def _methods(resource: object) -> list[str]:
    """Return the methods of a resource; HEAD is that of GET."""
    return [each for each in falcon.HTTP_METHODS if each != "HEAD" and hasattr(resource, f"on_{each.lower()}")]


def _operation(route: DocumentedRoute, path: str, method: str, operation: Operation, parts: _Parts) -> dict[str, Any]:
    responses = answers(operation, parts.schemas)
    responses |= parts.errors.of(operation, route.error_forms)
    shown: dict[str, Any] = {
        "tags": [route.documentation.name],
        "summary": operation.summary,
        "operationId": _operation_id(method, path),
        "responses": responses,
    }
    if parameters := [*_path_parameters(path, operation), *_query_parameters(route.path, operation)]:
        shown["parameters"] = parameters
    if operation.body is not None:
        shown["requestBody"] = _json_body(operation, parts.schemas)
    elif operation.form is not None:
        shown["requestBody"] = _form_body(operation, parts.schemas)
    if parts.keys:
        scope = needed_scope(route.resource, method)
        is_open = route.path in OPEN_PATHS or route.path.startswith(PAGE_FILES)
        shown["security"] = [] if is_open else [{"bearer": [scope]}, {"x-api-key": [scope]}]
    return shown


def _operation_id(method: str, path: str) -> str:
    return f"{method.lower()}_{_NOT_IN_IDS.sub('_', path).strip('_')}".rstrip("_")


def _path_parameters(path: str, operation: Operation) -> Iterator[dict[str, Any]]:
    declared = _fields(operation.path_parameters)
    for name in _CONVERTER.findall(path):
        schema = declared.get(name, {"type": "string", "minLength": 1})
        yield {"name": name, "in": "path", "required": True, "schema": schema}


def _query_parameters(template: str, operation: Operation) -> Iterator[dict[str, Any]]:
    required, in_path = _required(operation.query), _CONVERTER.findall(template)
    for name, schema in _fields(operation.query).items():
        if name not in in_path:
            yield {"name": name, "in": "query", "required": name in required, "schema": schema}


def _fields(parameters: type[msgspec.Struct] | None) -> dict[str, Any]:
    """Return the schema of each parameter that a struct declares."""
    if parameters is None:
        return {}
    found: dict[str, Any] = msgspec.json.schema(parameters)["$defs"][parameters.__name__]["properties"]
    return found


def _required(parameters: type[msgspec.Struct] | None) -> set[str]:
    return (
        {field.encode_name for field in msgspec.structs.fields(parameters) if field.required} if parameters else set()
    )


def _json_body(operation: Operation, schemas: Schemas) -> dict[str, Any]:
    schema = schemas.of(operation.body)
    if operation.needs:
        given = [{"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in operation.needs]
        schema = {"allOf": [schema, {"anyOf": given}]}
    content: dict[str, Any] = {"schema": schema}
    if operation.examples:
        content["examples"] = {name: {"value": body} for name, body in operation.examples.items()}
    return {"required": operation.body_required, "content": {"application/json": content}}


def _form_body(operation: Operation, schemas: Schemas) -> dict[str, Any]:
    form = operation.form
    assert form is not None  # noqa: S101 - the caller has looked
    files = {name: {"type": "string", "format": "binary"} for name in (*form.files, *form.optional_files)}
    extra = {"type": "object", "properties": files, "required": list(form.files)}
    content: dict[str, Any] = {"schema": {"allOf": [schemas.of(form.fields), extra]}}
    if operation.examples:
        content["examples"] = {name: {"value": body} for name, body in operation.examples.items()}
    return {"required": True, "content": {"multipart/form-data": content}}


OWN: Final = Documentation(
    "Server",
    "For process monitors and for people. Only `/` needs a key, and not for a browser.",
    {
        DocumentResource: {"GET": Operation("This document.", answer=dict[str, Any])},
        RootResource: {
            "GET": Operation(
                "A page for browsers, and for others the text `Ollama is running`.", texts=("text/html", "text/plain")
            )
        },
        FileResource: {
            "GET": Operation("A file that a page loads.", texts=("text/javascript", "text/css", "image/svg+xml"))
        },
        DocsResource: {"GET": Operation("A page that shows this document.", texts=("text/html",))},
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
