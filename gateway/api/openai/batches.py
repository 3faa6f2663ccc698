"""OpenAI's batches: requests in an uploaded file, worked off when nothing else needs the models, with their results in files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from gateway.api.common.operations import BODY, CONFLICT, NOT_FOUND, STORAGE
from gateway.api.common.routes import HttpCaller, route
from gateway.batches.stored_batches import StoredBatches, page_after
from gateway.files.stored_files import StoredFiles, owner_of
from gateway.server_clock import SERVER_CLOCK
from protocol.batches.batch_states import ENDED, BatchState
from protocol.batches.batch_store import BatchOrder, StoredBatch, new_id
from protocol.config.api_keys import Scope
from protocol.failures import Code, LemonbusError, invalid, printable

KIND: Final = "batch"
_UNIT_S: Final = {"h": 3600, "d": 86_400}
_LONGEST_WINDOW_S: Final = 30 * 86_400
_RESULTS_TTL_S: Final = 30 * 86_400
_MAX_METADATA: Final = 16

Endpoint = Literal[
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/images/generations",
    "/v1/reranking",
]


class ExpiresAfter(msgspec.Struct):
    """When the files of the results are deleted."""

    anchor: Literal["created_at"]
    seconds: Annotated[int, Meta(ge=3600, le=_RESULTS_TTL_S)]


class BatchRequest(msgspec.Struct):
    """A new batch."""

    input_file_id: Annotated[str, Meta(min_length=1)]
    """An uploaded file with a request in each line."""
    endpoint: Endpoint
    """The route of all its requests."""
    completion_window: Annotated[str, Meta(pattern="^[1-9][0-9]{0,3}[hd]$(?!\n)")] = "24h"
    """In which time it is worked off; lines that were not sent until then expire."""
    metadata: dict[str, str] | None = None
    output_expires_after: ExpiresAfter | None = None


class BatchErrorLine(msgspec.Struct):
    """What is wrong with the requests of a batch."""

    code: str
    message: str
    line: int | None
    param: str | None


class BatchErrors(msgspec.Struct):
    """Why a batch has failed."""

    object: Literal["list"]
    data: list[BatchErrorLine]


class BatchRequestCounts(msgspec.Struct):
    """How many of the requests have a result."""

    total: int
    completed: int
    failed: int


class BatchObject(msgspec.Struct):
    """A batch. Times are Unix seconds."""

    id: str
    object: Literal["batch"]
    endpoint: str
    input_file_id: str
    completion_window: str
    status: BatchState
    created_at: int
    expires_at: int
    request_counts: BatchRequestCounts
    errors: BatchErrors | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    in_progress_at: int | None = None
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    metadata: dict[str, str] | None = None
    waiting_reason: str | msgspec.UnsetType = msgspec.UNSET
    """Why none of its requests runs now; missing while one does."""


class BatchId(msgspec.Struct):
    """A batch."""

    batch_id: Annotated[str, Meta(min_length=1)]


class BatchesQuery(msgspec.Struct):
    """Which page."""

    after: str = ""
    """The id of the batch after which the page begins."""
    limit: Annotated[int, Meta(ge=1, le=100)] = 20


class BatchList(msgspec.Struct):
    """A page of batches, the newest first."""

    object: Literal["list"]
    data: list[BatchObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


def _shown(batch: StoredBatch, waits: Mapping[str, str] | None = None) -> BatchObject:
    order, progress, state = batch.order, batch.progress, batch.state
    ended = {
        f"{each}_at": progress.ended_at for each in ("completed", "failed", "expired", "cancelled") if each == state
    }
    problems = [
        BatchErrorLine(each.code, each.message, each.line or None, each.param or None) for each in progress.problems
    ]
    return BatchObject(
        id=order.id,
        object="batch",
        endpoint=order.endpoint,
        input_file_id=order.input_file_id,
        completion_window=order.completion_window,
        status=state,
        created_at=order.created_at,
        expires_at=order.expires_at,
        request_counts=BatchRequestCounts(progress.total, progress.completed, progress.failed),
        errors=BatchErrors("list", problems) if problems else None,
        output_file_id=progress.output_file_id or None,
        error_file_id=progress.error_file_id or None,
        in_progress_at=progress.in_progress_at or None,
        finalizing_at=progress.finalizing_at or None,
        cancelling_at=progress.cancelling_at or batch.cancel_at or None,
        metadata=order.metadata or None,
        waiting_reason=(waits or {}).get(order.id, msgspec.UNSET) if state not in ENDED else msgspec.UNSET,
        **ended,
    )


@route("POST", "batches", private=True, scope=Scope.INFERENCE, failures=BODY | NOT_FOUND | STORAGE)
def create_batch(caller: HttpCaller, request: BatchRequest) -> BatchObject:
    """Begins to work off the requests of a file, when no other request needs their models."""
    metadata = request.metadata or {}
    if len(metadata) > _MAX_METADATA or any(len(name) > 64 or len(text) > 512 for name, text in metadata.items()):
        raise invalid(f"`metadata` may have {_MAX_METADATA} texts of 512 characters, with names of 64", "metadata")
    number, unit = request.completion_window[:-1], request.completion_window[-1]
    window = int(number) * _UNIT_S[unit]
    if window > _LONGEST_WINDOW_S:
        raise invalid("`completion_window` must be at most 30d", "completion_window")
    files = caller.session.part(StoredFiles)
    try:
        file = files.get(request.input_file_id, caller.context)
    except LemonbusError as problem:
        if problem.failure.code is not Code.NOT_FOUND:
            raise
        raise invalid(
            f"`input_file_id`: there is no file {printable(request.input_file_id)}", "input_file_id"
        ) from None
    if file.purpose != KIND:
        raise invalid(f"`input_file_id`: the file has the purpose {file.purpose}, not batch", "input_file_id")
    now = int(SERVER_CLOCK.seconds())
    kept = request.output_expires_after
    order = BatchOrder(
        id=new_id(KIND),
        owner=owner_of(caller.context),
        endpoint=request.endpoint,
        created_at=now,
        expires_at=now + window,
        input_file_id=file.id,
        completion_window=request.completion_window,
        metadata=metadata,
        output_ttl=kept.seconds if kept is not None else _RESULTS_TTL_S,
    )
    return _shown(caller.session.part(StoredBatches).create(caller.env, order, files.store.data(file.id)))


@route("GET", "batches", private=True)
def list_batches(caller: HttpCaller, query: BatchesQuery) -> BatchList:
    """Lists the batches of the key, or all for an administrator."""
    batches = caller.session.part(StoredBatches)
    found, waits = batches.list(caller.env, f"{KIND}_"), batches.waits()
    if query.after:
        found = page_after(found, query.after, "after")
    page = [_shown(each, waits) for each in found[: query.limit]]
    first, last = (page[0].id, page[-1].id) if page else (None, None)
    return BatchList("list", page, first, last, has_more=len(found) > query.limit)


@route("GET", "batches/{batch_id}", private=True, failures=NOT_FOUND)
def show_batch(caller: HttpCaller, batch: BatchId) -> BatchObject:
    """Shows a batch."""
    batches = caller.session.part(StoredBatches)
    return _shown(batches.get(caller.env, batch.batch_id, KIND), batches.waits())


@route("POST", "batches/{batch_id}/cancel", private=True, scope=Scope.INFERENCE, failures=NOT_FOUND | CONFLICT)
def cancel_batch(caller: HttpCaller, batch: BatchId) -> BatchObject:
    """Cancels a batch: what has a result keeps it, and nothing more is run."""
    return _shown(caller.session.part(StoredBatches).cancel(caller.env, batch.batch_id, KIND))
