"""The files of a server as the routes use them: each key sees its own, an administrator all. A thread waits for the disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import gevent

from gateway.bus.session import SupervisorSession
from gateway.http.request_context import RequestContext
from gateway.threads import in_thread
from protocol.batches.file_store import FileRecord, FileStore
from protocol.failures import Code, Failure, write_failure
from protocol.models.nodes import HEAD

R = TypeVar("R")
_STEP: Final = 256 * 1024


def owner_of(context: RequestContext) -> str:
    """Return the owner of what a request makes: the digest of its API key, empty if the server has no keys.

    A name may be given to another key after the first was revoked, and the new key does not own what the old one made.
    """
    return context.api_key.sha256 if context.api_key is not None else ""


def seen_by(context: RequestContext) -> str | None:
    """Return whose files a request may see: None if it may see all."""
    return None if context.is_admin else owner_of(context)


def on_disk(work: Callable[[], R]) -> R:
    """Return what ``work`` returns, while others run. A full disk is ``insufficient_storage``, another error of it ``internal_error``."""
    try:
        return in_thread(work)
    except OSError as problem:
        message = f"the server's disk does not take or give the file now: {problem.strerror}"
        raise write_failure(problem, message).raised() from problem


class StoredFiles:
    """The files of the state directory."""

    def __init__(self, session: SupervisorSession) -> None:
        """Nothing is read yet."""
        self._node = session.node
        self._store = FileStore(session.settings)

    @property
    def store(self) -> FileStore:
        """The store; raises ``unsupported_operation`` in a gateway on another machine than the state directory."""
        if self._node != HEAD:
            message = "files and batches are on the head of this cluster: send the request to its address"
            raise Failure(Code.UNSUPPORTED, message).raised()
        return self._store

    def get(self, file_id: str, context: RequestContext) -> FileRecord:
        """Return a file that a request may see; raises ``not_found``."""
        return on_disk(lambda: self.store.get(file_id, seen_by(context)))

    def content(self, record: FileRecord) -> Iterator[bytes]:
        """Return the content of a file, piece by piece; raises ``not_found`` if it has just been deleted."""
        try:
            file = os.open(self.store.data(record.id), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise Failure(Code.NOT_FOUND, f"there is no file {record.id}", param="file_id").raised() from None
        return _pieces(file)


def _pieces(file: int) -> Iterator[Any]:
    try:
        while piece := os.read(file, _STEP):
            yield piece
            gevent.sleep(0)
    finally:
        os.close(file)
