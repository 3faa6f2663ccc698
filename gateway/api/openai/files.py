"""OpenAI's files: uploads of requests for batches, and the results of batches."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

import falcon
import msgspec
from msgspec import Meta

from gateway.api.common.operations import BODY, NOT_FOUND, STORAGE, Form, Operation
from gateway.api.common.route_resource import RouteResource
from gateway.api.common.routes import Content, HttpCaller, route
from gateway.bus.session import SupervisorSession
from gateway.files.stored_files import StoredFiles, on_disk, owner_of, seen_by
from gateway.http.bodies import body_limits
from gateway.http.request_context import request_context
from protocol.batches.file_store import FileDraft, FileRecord
from protocol.config.api_keys import Scope
from protocol.failures import invalid, printable, write_failure
from protocol.wire import form_data

PURPOSES: Final = ("batch",)
"""What uploads may be for; batches write ``batch_output``."""
_DAY_S: Final = 86_400
DEFAULT_TTL_S: Final = 30 * _DAY_S
_MAX_PAGE: Final = 10_000
_MAX_FIELD_BYTES: Final = 4096
_FORM_BYTES: Final = 64 * 1024
"""What a form may have besides the file."""
_FILE: Final = "file"
_SECONDS: Final = "expires_after[seconds]"
_ANCHOR: Final = "expires_after[anchor]"
_EXAMPLES: Final = {"requests of a batch": {"purpose": "batch"}}


class FileObject(msgspec.Struct, omit_defaults=True):
    """A file. Times are Unix seconds."""

    id: str
    bytes: int
    created_at: int
    filename: str
    purpose: Literal["batch", "batch_output"]
    object: Literal["file"]
    status: Literal["processed"]
    expires_at: int | None = None


class FileId(msgspec.Struct):
    """A file."""

    file_id: Annotated[str, Meta(min_length=1)]


class FilesQuery(msgspec.Struct):
    """Which files, in which order."""

    purpose: str = ""
    order: Literal["asc", "desc"] = "desc"
    after: str = ""
    """The id of the file after which the page begins."""
    limit: Annotated[int, Meta(ge=1, le=_MAX_PAGE)] = _MAX_PAGE


class FileList(msgspec.Struct):
    """A page of files."""

    object: Literal["list"]
    data: list[FileObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedFile(msgspec.Struct):
    """A file is gone."""

    id: str
    object: Literal["file"]
    deleted: bool


class UploadFields(msgspec.Struct):
    """The text fields of an upload."""

    purpose: Literal["batch"]
    """What the file is for: lines with the requests of a batch."""
    anchor: Literal["created_at"] | None = msgspec.field(default=None, name=_ANCHOR)
    """From when the seconds count."""
    seconds: Annotated[int, Meta(ge=3600, le=DEFAULT_TTL_S)] | None = msgspec.field(default=None, name=_SECONDS)
    """After how many seconds the file is deleted; 30 days unless it says otherwise."""


def _shown(record: FileRecord) -> FileObject:
    purpose: Any = record.purpose
    return FileObject(
        record.id,
        record.bytes,
        record.created_at,
        record.filename,
        purpose,
        object="file",
        status="processed",
        expires_at=record.expires_at or None,
    )


@route("GET", "files", private=True)
def list_files(caller: HttpCaller, query: FilesQuery) -> FileList:
    """Lists the files of the key, or all for an administrator."""
    files = caller.session.part(StoredFiles)
    found = on_disk(lambda: files.store.list(seen_by(caller.context), query.purpose))
    if query.order == "desc":
        found.reverse()
    if query.after:
        ids = [each.id for each in found]
        if query.after not in ids:
            raise invalid("`after` is not the id of a listed file", "after")
        found = found[ids.index(query.after) + 1 :]
    page = [_shown(each) for each in found[: query.limit]]
    first, last = (page[0].id, page[-1].id) if page else (None, None)
    return FileList("list", page, first, last, has_more=len(found) > query.limit)


@route("GET", "files/{file_id}", private=True, failures=NOT_FOUND)
def show_file(caller: HttpCaller, file: FileId) -> FileObject:
    """Shows a file."""
    return _shown(caller.session.part(StoredFiles).get(file.file_id, caller.context))


@route("DELETE", "files/{file_id}", private=True, scope=Scope.INFERENCE, failures=NOT_FOUND)
def delete_file(caller: HttpCaller, file: FileId) -> DeletedFile:
    """Deletes a file. A batch that reads it goes on."""
    files = caller.session.part(StoredFiles)
    record = files.get(file.file_id, caller.context)
    on_disk(lambda: files.store.delete(record))
    return DeletedFile(record.id, "file", deleted=True)


@route("GET", "files/{file_id}/content", private=True, binaries=("application/octet-stream",), failures=NOT_FOUND)
def read_file(caller: HttpCaller, file: FileId) -> Content:
    """Sends the content of a file."""
    files = caller.session.part(StoredFiles)
    return Content("application/octet-stream", files.content(files.get(file.file_id, caller.context)))


class FilesResource(RouteResource):
    """``files``: the list, and uploads, which are forms that nothing holds in memory."""

    def __init__(self, session: SupervisorSession) -> None:
        """Keep files in the state directory."""
        super().__init__(session, [list_files])
        self.scopes = {"POST": Scope.INFERENCE}
        operation = Operation(
            "Uploads a file.",
            answer=FileObject,
            form=Form(UploadFields, (_FILE,)),
            failures=BODY | STORAGE,
            examples=_EXAMPLES,
        )
        self.operations = {**self.operations, "POST": operation}

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Write the file while it arrives."""
        files, context = self.session.part(StoredFiles), request_context(req.env)
        owner, most = owner_of(context), self.session.settings.file_bytes + _FORM_BYTES
        kind = req.content_type or "nothing"
        if kind.partition(";")[0].strip().lower() != form_data.MEDIA_TYPE:
            context.close_after()
            raise invalid(f"this route takes {form_data.MEDIA_TYPE}, not {printable(kind.partition(';')[0])}")
        draft = on_disk(lambda: files.store.begin(owner, req.content_length or 0))
        try:
            with contextlib.closing(body_limits.read_pieces(req, most)) as pieces:
                fields, name = _received(kind, pieces, draft)
            ttl = _ttl(fields)
            record = on_disk(lambda: files.store.keep(draft, owner, name, fields["purpose"], ttl))
        except OSError as problem:
            draft.discard()
            message = f"the server's disk does not take the file now: {problem.strerror}"
            raise write_failure(problem, message).raised() from problem
        except BaseException:
            draft.discard()
            raise
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(_shown(record))


def _received(kind: str, body: Iterator[bytes], draft: FileDraft) -> tuple[dict[str, str], str]:
    """Write the file of a form; return the other fields, and the file's name."""
    texts: dict[str, bytes] = {}
    names: list[str] = []
    try:
        for part, data in form_data.parse_pieces(form_data.boundary_from_content_type(kind), body):
            if part.name == _FILE:
                if data is not None:
                    draft.write(data)
                else:
                    names.append(part.filename)
            elif data is not None:
                texts[part.name] = texts.get(part.name, b"") + data
                if len(texts[part.name]) > _MAX_FIELD_BYTES:
                    raise invalid(f"`{printable(part.name)}` is too long", printable(part.name))
        fields = {name: text.decode() for name, text in texts.items()}
    except ValueError as problem:
        raise invalid(f"the form cannot be read: {problem}") from None
    if len(names) != 1:
        raise invalid("`file` is required, once", _FILE)
    purpose = fields.setdefault("purpose", "")
    if purpose not in PURPOSES:
        reason = f"no route here uses files for {printable(purpose)}" if purpose else "it is required"
        raise invalid(f"`purpose` must be {' or '.join(PURPOSES)}: {reason}", "purpose")
    return fields, printable(names[0].replace("\0", "") or "file", 255)


def _ttl(fields: dict[str, str]) -> int:
    """Return for how many seconds a file is kept."""
    if _SECONDS not in fields and _ANCHOR not in fields:
        return DEFAULT_TTL_S
    if fields.get(_ANCHOR) != "created_at":
        raise invalid("`expires_after[anchor]` must be created_at", "expires_after")
    try:
        seconds = float(fields.get(_SECONDS, ""))
    except ValueError:
        seconds = math.nan
    if not 3600 <= seconds <= DEFAULT_TTL_S:
        raise invalid(f"`expires_after[seconds]` must be a number from 3600 to {DEFAULT_TTL_S}", "expires_after")
    return int(seconds)
