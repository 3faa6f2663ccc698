"""What operations of the document refer to, each once: schemas of the declared types, and responses for failures by their status. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import msgspec

from gateway.api.common.operations import EVERY, Operation
from gateway.http.errors import ErrorFormat

_TEMPLATE: Final = "#/components/schemas/{name}"
_JSON: Final = "application/json"
_NAMES: Final = {499: "Client Closed Request", 529: "Overloaded"}
_WITH_RETRY_AFTER: Final = frozenset({429, 503, 529})
COMMON_HEADERS: Final = {
    "X-Request-ID": {
        "description": "The id of the request: the client's `X-Request-ID`, or a new one. Log lines and errors have it.",
        "schema": {"type": "string"},
    },
    "Retry-After": {"description": "Seconds after which to ask again.", "schema": {"type": "integer", "minimum": 1}},
}


class Schemas:
    """The types that a document refers to."""

    def __init__(self) -> None:
        """Start with none."""
        self._found: dict[str, dict[str, Any]] = {}
        self._names: dict[Any, dict[str, Any]] = {}

    def of(self, kind: Any) -> dict[str, Any]:
        """Return the schema of a type, or of a tuple of alternative types; raises ValueError if two types share a name."""
        if isinstance(kind, tuple):
            return {"anyOf": [self.of(each) for each in kind]}
        if kind not in self._names:
            (self._names[kind],), found = msgspec.json.schema_components([kind], ref_template=_TEMPLATE)
            for name, schema in found.items():
                shown = _in_markdown(schema)
                if self._found.setdefault(name, shown) != shown:
                    raise ValueError(f"two documented types are called {name}")
        return self._names[kind]

    def components(self) -> dict[str, Any]:
        """Return the schemas by their names."""
        return dict(sorted(self._found.items()))


def _in_markdown(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with its description in Markdown, and without its title, which is its name."""
    shown = {key: value for key, value in schema.items() if key != "title"}
    if "description" in shown:
        shown["description"] = shown["description"].replace("``", "`")
    return shown


def answers(operation: Operation, schemas: Schemas) -> dict[str, Any]:
    """Return the response of a successful request."""
    content: dict[str, Any] = {}
    if operation.answer is not None:
        content[_JSON] = {"schema": schemas.of(operation.answer)}
    for media_type in operation.texts:
        content[media_type] = {"schema": {"type": "string"}}
    content |= {media_type: {} for media_type in operation.binaries}  # OpenAPI 3.1 has no schema for bytes
    if operation.stream is not None:
        stream = operation.stream
        # No schema: OpenAPI 3.1 has none for the single events of a stream.
        content[stream.media_type] = {"example": stream.example}
    return {
        str(status): _response(_phrase(status), content) for status in (operation.status, *operation.other_statuses)
    }


class ErrorForm(NamedTuple):
    """How an API family writes errors."""

    form: ErrorFormat
    body: type
    """The type of its error bodies."""


class ErrorResponses:
    """The error responses that a document refers to: most operations share them."""

    def __init__(self, schemas: Schemas) -> None:
        """Start with none. The forms of bodies are in ``schemas``."""
        self._schemas = schemas
        self._names: dict[_Kind, str] = {}
        self._found: dict[str, dict[str, Any]] = {}

    def of(self, operation: Operation, forms: Iterable[ErrorForm]) -> dict[str, Any]:
        """Return the response for each status of an operation's failures, in any of these forms.

        A status that an answer may also have has both bodies.
        """
        bodies: dict[int, list[type]] = {status: [operation.answer] for status in operation.other_statuses}
        codes: dict[int, set[str]] = {}
        for form, body in forms:
            for failure in {*operation.failures, *EVERY}:
                status = form.error_status(failure)
                codes.setdefault(status, set()).add(failure.code.value)
                if body not in (known := bodies.setdefault(status, [])):
                    known.append(body)
        kinds = {status: _Kind(tuple(bodies[status]), status, frozenset(codes[status])) for status in sorted(codes)}
        return {str(status): {"$ref": f"#/components/responses/{self._name(kind)}"} for status, kind in kinds.items()}

    def components(self) -> dict[str, Any]:
        """Return the responses by their names."""
        return dict(sorted(self._found.items()))

    def _name(self, kind: _Kind) -> str:
        if kind not in self._names:
            alike = sum(known[:2] == kind[:2] for known in self._names)
            name = "-or-".join(body.__name__ for body in kind.bodies) + str(kind.status)
            name = self._names[kind] = name + (f"-{alike + 1}" if alike else "")
            self._found[name] = _response(
                f"{_phrase(kind.status)}: {', '.join(f'`{code}`' for code in sorted(kind.codes))}",
                {_JSON: {"schema": self._schemas.of(kind.bodies if len(kind.bodies) > 1 else kind.bodies[0])}},
                *(["Retry-After"] if kind.status in _WITH_RETRY_AFTER else []),
            )
        return self._names[kind]


class _Kind(NamedTuple):
    bodies: tuple[type, ...]
    status: int
    codes: frozenset[str]


def _response(description: str, content: dict[str, Any], *headers: str) -> dict[str, Any]:
    names = ("X-Request-ID", *headers)
    shown = {"description": description, "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in names}}
    return {**shown, "content": content} if content else shown


def _phrase(status: int) -> str:
    return _NAMES.get(status) or HTTPStatus(status).phrase
