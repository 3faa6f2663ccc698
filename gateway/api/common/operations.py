"""What a route takes and answers, as data from which the OpenAPI document is made. Pure.

A declared route (:mod:`gateway.api.common.routes`) makes its own. A family with other resources has a table of theirs in
its ``documentation.py``, which is imported only when the document is requested: other gateway processes spend no memory
on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Meta

from protocol.failures import Code, Failure
from protocol.requests.request_limits import MAX_ENTRIES

NOT_EMPTY: Final = Meta(extra_json_schema={"minItems": 1})
"""Documents a list's bounds, which the code checks itself with a better message than a type's."""


def entries_of(field: str) -> Meta:
    """Return the same for a required list, with the number of entries that :mod:`protocol.requests.request_limits` allows."""
    return Meta(extra_json_schema={"minItems": 1, "maxItems": MAX_ENTRIES[field]})


EVENT_STREAM: Final = "text/event-stream"


def _failures(*codes: Code) -> frozenset[Failure]:
    return frozenset(Failure(code, "") for code in codes)


EVERY: Final = _failures(
    *(Code.INVALID_REQUEST, Code.UNAUTHORIZED, Code.FORBIDDEN, Code.URI_TOO_LONG, Code.HEADERS_TOO_LARGE),
    *(Code.STARTING, Code.DRAINING, Code.SUPERVISOR_LOST, Code.OVERLOADED, Code.TIMEOUT, Code.INTERNAL),
)
"""Failures of any request."""
BODY: Final = frozenset(
    {*_failures(Code.INVALID_JSON, Code.TOO_LARGE, Code.MEDIA_TYPE), Failure(Code.TIMEOUT, "", status=408)}
)
"""Failures of a request with a body."""
NOT_FOUND: Final = _failures(Code.NOT_FOUND)
NO_MODEL: Final = _failures(Code.MODEL_NOT_FOUND)
CONFLICT: Final = _failures(Code.CONFLICT)
MODEL: Final = _failures(
    *(Code.NOT_FOUND, Code.MODEL_NOT_FOUND, Code.NOT_LOADED, Code.CHECKPOINT_NOT_FOUND, Code.CONFLICT, Code.ALL_PINNED),
    *(Code.BACKEND_NOT_INSTALLED, Code.UNSUPPORTED, Code.DOWNLOAD_FAILED, Code.DOWNLOAD_PAUSED, Code.OFFLINE),
    *(Code.LOAD_FAILED, Code.BACKING_OFF, Code.BREAKER_OPEN, Code.RESTART_NEEDED, Code.UNLOADED),
    Code.INSUFFICIENT_MEMORY,
    Code.INSUFFICIENT_STORAGE,
    Code.NO_NODE,
)
"""Failures of finding, downloading and loading a model."""
ENGINE: Final = _failures(
    *(
        Code.DRAINED,
        Code.CONTEXT_EXCEEDED,
        Code.RATE_LIMITED,
        Code.QUOTA,
        Code.SPOOL_FULL,
        Code.RETURNED,
        Code.BACKEND_DIED,
        Code.BACKEND_ERROR,
    ),
    *(Code.HUNG, Code.CONNECTION_LOST, Code.OUT_OF_MEMORY, Code.LOST, Code.WORKER_GONE, Code.NODE_LOST),
    Code.OPERATOR_CANCELLED,
)
"""Failures of asking an engine."""
INFERENCE: Final = BODY | MODEL | ENGINE
CHANGE: Final = BODY | MODEL
"""Failures of a request that changes models."""
UNSUPPORTED: Final = _failures(Code.UNSUPPORTED)
STORAGE: Final = _failures(Code.INSUFFICIENT_STORAGE)
"""Failures of a request that changes files of the server."""


class Form(NamedTuple):
    """A body of ``multipart/form-data``."""

    fields: type[msgspec.Struct]
    """The text fields."""
    files: tuple[str, ...]
    """The required files."""
    optional_files: tuple[str, ...] = ()


class Stream(NamedTuple):
    """A streamed answer."""

    media_type: str
    example: str
    """An example of such a stream, from its beginning to its end."""


class Operation(NamedTuple):
    """One method of one route."""

    summary: str
    answer: Any = None
    """The type of the JSON answer, or a tuple of several; None: no JSON answer."""
    body: Any = None
    """The type of the JSON body; None: no JSON body."""
    body_required: bool = True
    needs: tuple[str, ...] = ()
    """Fields of the body, one of which is required."""
    form: Form | None = None
    query: type[msgspec.Struct] | None = None
    """The query parameters, as fields."""
    path_parameters: type[msgspec.Struct] | None = None
    """The parameters in the path that are not plain texts, as fields."""
    texts: tuple[str, ...] = ()
    """Media types of text answers."""
    binaries: tuple[str, ...] = ()
    """Media types of answers that are bytes, such as sound."""
    stream: Stream | None = None
    failures: frozenset[Failure] = frozenset()
    """Failures of the request, besides :data:`EVERY`."""
    examples: Mapping[str, Any] = {}
    """Name → body, or the fields of the form."""
    shown_path: str = ""
    """The path, if one route of the gateway is several in the document."""
    status: int = 200
    other_statuses: tuple[int, ...] = ()
    """Other statuses with the same type of answer, such as 202: the work goes on."""


class ErrorObject(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What happened, to which model and request, and which field is wrong."""

    message: str
    type: str
    code: str | int
    param: str | None
    request_id: str
    model: str | msgspec.UnsetType = msgspec.UNSET
    detail: str | msgspec.UnsetType = msgspec.UNSET


class ErrorBody(msgspec.Struct):
    """An error of OpenAI's and Lemonade's routes."""

    status: str
    message: str
    error: ErrorObject


class LateError(msgspec.Struct, kw_only=True):
    """An error in an answer that took long: its status, 200, had already been sent."""

    class LateErrorObject(ErrorObject, kw_only=True):
        """With the status that the response should have had."""

        status_code: int

    status: str
    message: str
    error: LateErrorObject


class Documentation(NamedTuple):
    """One API family in the document."""

    name: str
    description: str
    operations: Mapping[type, Mapping[str, Operation]] = {}
    """Class of a resource → HTTP method → what it takes and answers; without those that have ``operations``, as declared routes do."""
    error: type = ErrorBody
    """The type of the body of an error below the family's ``error_prefixes``."""

    def of(self, resource: object) -> Mapping[str, Operation]:
        """Return what a resource takes and answers, by HTTP method; empty if that is not declared.

        A resource with a ``request_type`` takes JSON of this type, unless another body is declared.
        """
        found: Mapping[str, Operation] = getattr(resource, "operations", None) or self.operations.get(
            type(resource), {}
        )
        body = getattr(resource, "request_type", None)
        return {
            method: operation._replace(body=operation.body or body) if operation.form is None else operation
            for method, operation in found.items()
        }
