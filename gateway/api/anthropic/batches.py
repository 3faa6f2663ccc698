"""Anthropic's message batches: requests in the body, worked off as OpenAI's batches are, with their results as a stream of lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

import gevent
import msgspec
from msgspec import Meta

from gateway.api.common.operations import BODY, CONFLICT, NOT_FOUND, STORAGE
from gateway.api.common.routes import Content, HttpCaller, route
from gateway.batches.stored_batches import StoredBatches, page_after
from gateway.files.stored_files import owner_of
from gateway.server_clock import SERVER_CLOCK
from protocol.batches.batch_states import BatchState
from protocol.batches.batch_store import ERRORS, MAX_LINES, OUTPUT, BatchOrder, StoredBatch, new_id
from protocol.config.api_keys import Scope
from protocol.failures import Code, Failure, invalid

KIND: Final = "msgbatch"
ENDPOINT: Final = "/v1/messages"
_DAY_S: Final = 86_400
_UNSENT: Final = {"batch_cancelled": "canceled", "batch_expired": "expired"}
_PAUSE_LINES: Final = 64
_FIRST: Final = frozenset({BatchState.VALIDATING, BatchState.IN_PROGRESS, BatchState.FINALIZING})


class BatchedMessage(msgspec.Struct):
    """A request of a batch."""

    custom_id: Annotated[str, Meta(pattern="^[a-zA-Z0-9_-]{1,64}$(?!\n)")]
    params: dict[str, Any]
    """A request of `POST messages`."""


class MessageBatchRequest(msgspec.Struct):
    """A new batch."""

    requests: Annotated[list[BatchedMessage], Meta(min_length=1, max_length=MAX_LINES)]


class MessageBatchCounts(msgspec.Struct):
    """What became of the requests. All are `processing` until the batch has ended."""

    processing: int
    succeeded: int = 0
    errored: int = 0
    canceled: int = 0
    expired: int = 0


class MessageBatch(msgspec.Struct):
    """A batch."""

    id: str
    type: Literal["message_batch"]
    processing_status: Literal["in_progress", "canceling", "ended"]
    request_counts: MessageBatchCounts
    created_at: str
    expires_at: str
    ended_at: str | None = None
    cancel_initiated_at: str | None = None
    archived_at: str | None = None
    results_url: str | None = None
    waiting_reason: str | msgspec.UnsetType = msgspec.UNSET
    """Why none of its requests runs now; missing while one does."""


class MessageBatchId(msgspec.Struct):
    """A batch."""

    message_batch_id: Annotated[str, Meta(min_length=1)]


class MessageBatchesQuery(msgspec.Struct):
    """Which page."""

    after_id: str = ""
    before_id: str = ""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 20


class MessageBatchList(msgspec.Struct):
    """A page of batches, the newest first."""

    data: list[MessageBatch]
    has_more: bool
    first_id: str | None
    last_id: str | None


class DeletedMessageBatch(msgspec.Struct):
    """A batch is forgotten, with its results."""

    id: str
    type: Literal["message_batch_deleted"]


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _shown(caller: HttpCaller, batch: StoredBatch, waits: Mapping[str, str] | None = None) -> MessageBatch:
    order, progress = batch.order, batch.progress
    ended = progress.ended_at
    counts = MessageBatchCounts(order.lines)
    if ended:
        errored = progress.failed - progress.cancelled - progress.expired
        counts = MessageBatchCounts(0, progress.completed, errored, progress.cancelled, progress.expired)
    running: Literal["in_progress", "canceling"] = "in_progress" if batch.state in _FIRST else "canceling"
    return MessageBatch(
        id=order.id,
        type="message_batch",
        processing_status="ended" if ended else running,
        request_counts=counts,
        created_at=_time(order.created_at),
        expires_at=_time(order.expires_at),
        ended_at=_time(ended) if ended else None,
        cancel_initiated_at=_time(batch.cancel_at) if batch.cancel_at else None,
        results_url=f"{_address(caller.env)}/messages/batches/{order.id}/results" if ended else None,
        waiting_reason=msgspec.UNSET if ended else (waits or {}).get(order.id, msgspec.UNSET),
    )


def _address(env: dict[str, Any]) -> str:
    """Return the address by which the client reached this server, up to the version."""
    prefix = env.get("PATH_INFO", "").partition("/messages/")[0] or "/v1"
    return f"{env.get('wsgi.url_scheme', 'http')}://{env.get('HTTP_HOST', '')}{prefix}"


@route("POST", "messages/batches", private=True, scope=Scope.INFERENCE, failures=BODY | STORAGE)
def create_message_batch(caller: HttpCaller, request: MessageBatchRequest) -> MessageBatch:
    """Begins to answer messages, when no other request needs their models."""
    seen: set[str] = set()
    for number, each in enumerate(request.requests):
        if each.custom_id in seen:
            raise invalid(f"requests[{number}].custom_id is used twice", f"requests[{number}].custom_id")
        seen.add(each.custom_id)
        if each.params.get("stream"):
            raise invalid(
                f"requests[{number}].params: a request of a batch cannot be a stream",
                f"requests[{number}].params.stream",
            )
    now = int(SERVER_CLOCK.seconds())
    order = BatchOrder(
        id=new_id(KIND),
        owner=owner_of(caller.context),
        endpoint=ENDPOINT,
        created_at=now,
        expires_at=now + _DAY_S,
        lines=len(seen),
    )
    return _shown(caller, caller.session.part(StoredBatches).create(caller.env, order, _lines(request.requests)))


def _lines(requests: list[BatchedMessage]) -> Iterator[bytes]:
    for each in requests:
        line = {"custom_id": each.custom_id, "method": "POST", "url": ENDPOINT, "body": each.params}
        yield msgspec.json.encode(line) + b"\n"


@route("GET", "messages/batches", private=True)
def list_message_batches(caller: HttpCaller, query: MessageBatchesQuery) -> MessageBatchList:
    """Lists the batches of the key, or all for an administrator."""
    batches = caller.session.part(StoredBatches)
    found, waits = batches.list(caller.env, f"{KIND}_"), batches.waits()
    if query.before_id:
        newer = len(found) - len(page_after(found, query.before_id, "before_id")) - 1
        page, more = found[max(0, newer - query.limit) : newer], newer > query.limit
    else:
        found = page_after(found, query.after_id, "after_id") if query.after_id else found
        page, more = found[: query.limit], len(found) > query.limit
    shown = [_shown(caller, each, waits) for each in page]
    first, last = (shown[0].id, shown[-1].id) if shown else (None, None)
    return MessageBatchList(shown, more, first, last)


@route("GET", "messages/batches/{message_batch_id}", private=True, failures=NOT_FOUND)
def show_message_batch(caller: HttpCaller, batch: MessageBatchId) -> MessageBatch:
    """Shows a batch."""
    batches = caller.session.part(StoredBatches)
    return _shown(caller, batches.get(caller.env, batch.message_batch_id, KIND), batches.waits())


@route(
    "POST",
    "messages/batches/{message_batch_id}/cancel",
    private=True,
    scope=Scope.INFERENCE,
    failures=NOT_FOUND | CONFLICT,
)
def cancel_message_batch(caller: HttpCaller, batch: MessageBatchId) -> MessageBatch:
    """Cancels a batch: what has a result keeps it, and nothing more is run."""
    return _shown(caller, caller.session.part(StoredBatches).cancel(caller.env, batch.message_batch_id, KIND))


@route("DELETE", "messages/batches/{message_batch_id}", private=True, scope=Scope.INFERENCE, failures=NOT_FOUND)
def delete_message_batch(caller: HttpCaller, batch: MessageBatchId) -> DeletedMessageBatch:
    """Forgets a batch that has ended, with its results."""
    caller.session.part(StoredBatches).delete(caller.env, batch.message_batch_id, KIND)
    return DeletedMessageBatch(batch.message_batch_id, "message_batch_deleted")


@route(
    "GET",
    "messages/batches/{message_batch_id}/results",
    private=True,
    binaries=("application/x-jsonl",),
    failures=NOT_FOUND,
)
def read_message_batch(caller: HttpCaller, batch: MessageBatchId) -> Content:
    """Sends the results of a batch that has ended, one a line."""
    batches = caller.session.part(StoredBatches)
    found = batches.get(caller.env, batch.message_batch_id, KIND)
    if not found.progress.ended_at:
        message = f"the batch {found.order.id} has not ended, so it has no results yet"
        raise Failure(Code.NOT_FOUND, message, param="message_batch_id").raised()
    return Content("application/x-jsonl", _results(batches, found.order.id))


def _results(batches: StoredBatches, batch_id: str) -> Iterator[bytes]:
    for name in (OUTPUT, ERRORS):
        path = batches.path(batch_id, name)
        if not path.exists():
            continue
        with path.open("rb") as file:
            for number, line in enumerate(file):
                yield _result(line)
                if not number % _PAUSE_LINES:
                    gevent.sleep(0)


class _Response(msgspec.Struct):
    status_code: int
    body: msgspec.Raw


class _Problem(msgspec.Struct):
    code: str


class _Line(msgspec.Struct):
    custom_id: str
    response: _Response | None
    error: _Problem | None


_decode: Final = msgspec.json.Decoder(_Line).decode


def _result(line: bytes) -> bytes:
    """Return a line of results in Anthropic's form."""
    found = _decode(line)
    result: dict[str, Any]
    if found.response is None:
        result = {"type": _UNSENT[found.error.code if found.error is not None else ""]}
    elif found.response.status_code < 400:
        result = {"type": "succeeded", "message": found.response.body}
    else:
        result = {"type": "errored", "error": found.response.body}
    return msgspec.json.encode({"custom_id": found.custom_id, "result": result}) + b"\n"
