"""The batches of a server as routes use them: each key sees its own, an administrator all. A thread waits for the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar

from gateway.bus.session import SupervisorSession
from gateway.files.stored_files import StoredFiles, on_disk, seen_by
from gateway.http.request_context import request_context
from protocol.batches import batch_waits
from protocol.batches.batch_states import ENDED
from protocol.batches.batch_store import BatchOrder, BatchStore, StoredBatch
from protocol.failures import Code, Failure, invalid
from protocol.messages.batches import BatchesChanged

R = TypeVar("R")
Environ = dict[str, Any]


class StoredBatches:
    """The batches of the state directory. ``env`` is ``req.env``."""

    def __init__(self, session: SupervisorSession) -> None:
        """Nothing is read yet."""
        self._session = session
        self._files = session.part(StoredFiles)
        self._store = BatchStore(session.settings)
        self._runtime = Path(session.settings.runtime_dir)

    def _on_disk(self, work: Callable[[BatchStore], R]) -> R:
        _ = self._files.store  # refuses in a gateway on another machine
        return on_disk(lambda: work(self._store))

    def create(self, env: Environ, order: BatchOrder, requests: Path | Iterable[bytes]) -> StoredBatch:
        """Make a batch. Raises ``rate_limit_exceeded`` if the key has too many."""
        self._on_disk(lambda store: store.create(order, requests))
        self._tell(env)
        return self.get(env, order.id, order.id.partition("_")[0])

    def get(self, env: Environ, batch_id: str, kind: str) -> StoredBatch:
        """Return a batch; raises ``not_found``. ``kind``: how its id begins."""
        owner = seen_by(request_context(env))
        return self._on_disk(lambda store: store.get(batch_id, owner, kind))

    def list(self, env: Environ, kind: str) -> list[StoredBatch]:
        """Return the batches of the caller's key, the newest first."""
        owner = seen_by(request_context(env))
        return self._on_disk(lambda store: store.owned_by(owner, kind))[::-1]

    def waits(self) -> dict[str, str]:
        """Return the batches that wait now, with the reason of each."""
        return self._on_disk(lambda _store: batch_waits.read(self._runtime))

    def cancel(self, env: Environ, batch_id: str, kind: str) -> StoredBatch:
        """Cancel a batch and return it. Raises ``not_found``, and ``conflict`` if it has ended."""
        batch = self.get(env, batch_id, kind)
        if batch.progress.state in ENDED:
            message = f"the batch is {batch.progress.state}: it cannot be cancelled"
            raise Failure(Code.CONFLICT, message, param="batch_id").raised()
        if not batch.cancel_at:
            self._on_disk(lambda store: store.cancel(batch_id))
        self._tell(env)
        return self.get(env, batch_id, kind)

    def delete(self, env: Environ, batch_id: str, kind: str) -> None:
        """Forget a batch that has ended, with its results. Raises ``not_found``, and ``invalid_request`` if it has not."""
        batch = self.get(env, batch_id, kind)
        if batch.progress.state not in ENDED:
            raise invalid("a batch can only be deleted when it has ended: cancel it first", "batch_id")
        self._on_disk(lambda store: store.delete(batch_id))

    def path(self, batch_id: str, name: str) -> Path:
        """Return a file of a batch."""
        return self._store.path(batch_id, name)

    def _tell(self, env: Environ) -> None:
        self._session.call(env, BatchesChanged, NoneType)


def page_after(batches: list[StoredBatch], batch_id: str, field: str) -> list[StoredBatch]:
    """Return what follows a batch in a list; raises ``invalid_request`` naming the ``field`` that has the id."""
    ids = [each.order.id for each in batches]
    if batch_id not in ids:
        raise invalid(f"`{field}` is not the id of a listed batch", field)
    return batches[ids.index(batch_id) + 1 :]
