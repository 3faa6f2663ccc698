"""The batches of a server: a folder each in ``STATE_DIR/batches``, for processes of one machine.

``order.json``    what the client asked for; a gateway writes it once
``cancel``        a gateway makes it; its time is when the batch was cancelled
``input.jsonl``   the requests, one a line: the same file as the client's upload
``progress.json`` where the batch is; like all that follow, only the job that works batches off writes it
``output.jsonl``  results, appended; ``errors.jsonl`` the lines that have failed

A batch exists as a whole or not at all: its folder is made under another name first.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from protocol import small_files
from protocol.batches.batch_states import CANCELLABLE, ENDED, BatchState
from protocol.config.settings import Settings
from protocol.failures import DECODE_ERRORS, Code, Failure
from protocol.file_lock import folder_lock

BATCH_ID: Final = re.compile(r"(batch|msgbatch)_[0-9a-f]{32}")
MAX_OPEN_OF_KEY: Final = 100
"""Batches of an API key that have not ended."""
MAX_KEPT_OF_KEY: Final = 1_000
"""Batches of a key; the oldest that have ended are forgotten first."""
MAX_LINES: Final = 50_000
_ORDER, _PROGRESS, _CANCEL, _PENDING = "order.json", "progress.json", "cancel", "pending"
INPUT: Final = "input.jsonl"
OUTPUT: Final = "output.jsonl"
ERRORS: Final = "errors.jsonl"


class BatchOrder(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a client asked for. Times are Unix seconds."""

    id: str
    owner: str
    """The digest of the API key that it runs as; empty if it was made without one."""
    endpoint: str
    """The route of each request, such as ``/v1/chat/completions``."""
    created_at: int
    expires_at: int
    input_file_id: str = ""
    completion_window: str = "24h"
    metadata: dict[str, str] = {}
    lines: int = 0
    """How many requests it has, if that is known before they are checked."""
    output_ttl: int = 0
    """Seconds for which its results are kept; 0: until they are deleted."""


class BatchProblem(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is wrong with a batch; ``line`` counts from 1, 0 for no line."""

    code: str
    message: str
    line: int = 0
    param: str = ""


class BatchProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a batch is. Times are Unix seconds, 0 for what has not happened."""

    state: BatchState = BatchState.VALIDATING
    total: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    """Of the ``failed`` lines, those that were not sent because the batch was cancelled."""
    expired: int = 0
    """The same, because its time was over."""
    in_progress_at: int = 0
    finalizing_at: int = 0
    cancelling_at: int = 0
    ended_at: int = 0
    problems: list[BatchProblem] = []
    output_file_id: str = ""
    error_file_id: str = ""


class StoredBatch(NamedTuple):
    """A batch as it is on the disk."""

    order: BatchOrder
    progress: BatchProgress
    cancel_at: int = 0
    """When it was cancelled; 0: it was not."""

    @property
    def state(self) -> BatchState:
        """Where it is, as its client sees it: cancelled as soon as that was asked for."""
        known = self.progress.state
        return BatchState.CANCELLING if self.cancel_at and known in CANCELLABLE else known


class BatchStore:
    """The batches of a state directory. Its methods may wait for the disk, and raise OSError if it fails."""

    def __init__(self, settings: Settings, now: Callable[[], float] = time.time) -> None:
        """Nothing is read or made."""
        self.folder = Path(settings.state_dir) / "batches"
        self._now = now

    @property
    def pending(self) -> Path:
        """A file that exists as long as a batch may not have ended."""
        return self.folder / _PENDING

    def path(self, batch_id: str, name: str) -> Path:
        """Return one of the files of a batch."""
        return self.folder / batch_id / name

    def create(self, order: BatchOrder, requests: Path | Iterable[bytes]) -> None:
        """Make a batch of an uploaded file or of lines. Raises ``overloaded`` if its owner has too many."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self.folder / f".{order.id}.new"
        draft.mkdir(mode=0o700)
        try:
            _fill(draft / INPUT, requests)
            with small_files.private_draft(draft / _ORDER, msgspec.json.encode(order), lasting=True) as file:
                file.replace(draft / _ORDER)
            with folder_lock(self.folder):
                self._forget_oldest(order.owner)
                self.pending.touch(mode=0o600)
                draft.rename(self.folder / order.id)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise

    def _forget_oldest(self, owner: str) -> None:
        own = self.owned_by(owner)
        open_ = sum(each.progress.state not in ENDED for each in own)
        if open_ >= MAX_OPEN_OF_KEY:
            reason = f"{open_} of your batches have not ended: wait for one of them, or cancel it"
            raise Failure(Code.RATE_LIMITED, reason, retry_after=60).raised()
        ended = [each for each in own if each.progress.state in ENDED]
        for each in ended[: max(0, len(own) - MAX_KEPT_OF_KEY + 1)]:
            self.delete(each.order.id)

    def get(self, batch_id: str, owner: str | None, kind: str = "batch") -> StoredBatch:
        """Return a batch of this owner, or with None of any; raises ``not_found``. ``kind``: how its id begins."""
        known = BATCH_ID.fullmatch(batch_id) and batch_id.startswith(f"{kind}_")
        batch = self._read(batch_id) if known else None
        if batch is None or owner not in (None, batch.order.owner):
            shown = batch_id if known else "with this id"
            raise Failure(Code.NOT_FOUND, f"there is no batch {shown}", param="batch_id").raised()
        return batch

    def owned_by(self, owner: str | None, kind: str = "") -> list[StoredBatch]:
        """Return the batches of this owner, or with None of all, oldest first. ``kind``: how their ids begin."""
        own = []
        for name in self.names():
            with contextlib.suppress(OSError):  # the others are there, whatever has become of this one
                each = self._read(name) if name.startswith(kind) else None
                if each is not None and owner in (None, each.order.owner):
                    own.append(each)
        return sorted(own, key=lambda each: (each.order.created_at, self._written_at(each.order.id)))

    def _written_at(self, batch_id: str) -> int:
        """Return when a batch was made, in nanoseconds: several may be made in a second."""
        try:
            return self.path(batch_id, _ORDER).stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def names(self) -> list[str]:
        """Return the ids of all batches."""
        if not self.folder.is_dir():
            return []
        return [path.name for path in self.folder.iterdir() if BATCH_ID.fullmatch(path.name)]

    def cancel(self, batch_id: str) -> None:
        """Ask for the end of a batch."""
        self.path(batch_id, _CANCEL).touch(mode=0o600)
        self.pending.touch(mode=0o600)

    def delete(self, batch_id: str) -> None:
        """Forget a batch. Files of its results stay."""
        gone = self.folder / f".{batch_id}.{secrets.token_hex(4)}.gone"
        with contextlib.suppress(FileNotFoundError):
            (self.folder / batch_id).rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def tidy(self, order: BatchOrder) -> None:
        """Remove what an ended batch does not need any more: its results are files of its owner, who may delete them."""
        for name in (INPUT, OUTPUT, ERRORS) if order.input_file_id else (INPUT,):
            self.path(order.id, name).unlink(missing_ok=True)

    def write_progress(self, batch_id: str, progress: BatchProgress) -> None:
        """Replace what is known of where a batch is."""
        path = self.path(batch_id, _PROGRESS)
        with small_files.private_draft(path, msgspec.json.encode(progress), lasting=True) as draft:
            draft.replace(path)

    def cancelled_at(self, batch_id: str) -> int:
        """Return when a batch was cancelled; 0: it was not."""
        try:
            return int(self.path(batch_id, _CANCEL).stat().st_mtime)
        except FileNotFoundError:
            return 0

    def _read(self, batch_id: str) -> StoredBatch | None:
        try:
            order = msgspec.json.decode(small_files.read_small_file(self.path(batch_id, _ORDER)), type=BatchOrder)
        except (OSError, *DECODE_ERRORS):
            return None
        progress = BatchProgress()
        # One that cannot be read is as none: its lines are checked again, and those with a result are not run again.
        with contextlib.suppress(FileNotFoundError, *DECODE_ERRORS):
            data = small_files.read_small_file(self.path(batch_id, _PROGRESS))
            progress = msgspec.json.decode(data, type=BatchProgress)
        return StoredBatch(order, progress, self.cancelled_at(batch_id))

    def sweep(self) -> None:
        """Remove what was never finished; only for the one process that works batches off, when nothing is being made."""
        for path in list(self.folder.iterdir()) if self.folder.is_dir() else []:
            with contextlib.suppress(FileNotFoundError):
                if path.name.startswith(".") and path.stat().st_mtime < self._now() - 3600:
                    shutil.rmtree(path, ignore_errors=True)


def _fill(path: Path, requests: Path | Iterable[bytes]) -> None:
    """Make the input of a batch: the same file as an upload, so that its deletion does no harm."""
    if isinstance(requests, Path):
        link_or_copy(requests, path)
        return
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        for line in requests:
            file.write(line)
        file.flush()
        os.fsync(file.fileno())


def link_or_copy(source: Path, target: Path) -> None:
    """Make ``target`` the same file as ``source``, or a copy where the file system has no links; raises OSError."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        draft = target.with_suffix(".part")
        shutil.copyfile(source, draft)
        draft.replace(target)


def new_id(kind: str) -> str:
    """Return an id that cannot be guessed. ``kind``: ``batch`` or ``msgbatch``."""
    return f"{kind}_{secrets.token_hex(16)}"
