"""Fetches model files from other nodes: the missing part of each file, from one sender after another, checked by its digest.

A partial file has a name that belongs to the content, so a later job goes on where this one has ended.
"""

from __future__ import annotations

import errno
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import urllib3
from urllib3.exceptions import HTTPError

from protocol.messages.model_transfer import FileSender, FilesFetched, StartFileTransfer, TransferFile
from workers.jobs import disk
from workers.jobs.errors import SourceError
from workers.jobs.model_download.partial_file import PartialFile
from workers.jobs.model_transfer.file_places import FilePlace, NodeFolders, is_same
from workers.jobs.progress import DownloadProgress

PATIENCE_S: Final = 30.0
"""How long no sender may give a byte before the transfer fails."""
_PAUSE_S: Final = 0.5
"""Between two rounds of all senders, and between two questions for a digest."""
_TIMEOUT: Final = urllib3.Timeout(connect=5.0, read=20.0)
_LEAST_DIGEST_RATE: Final = 10_000_000
"""Bytes per second that any sender reads from its disk for a digest."""
_BLOCK: Final = 256 << 10
_SHA256_LENGTH: Final = 64
_PARTIAL: Final = ".incomplete"
_SENDER: Final = "the sending node"


class FileReceiver:
    """One transfer of all missing files of a model. Runs in a thread; :attr:`done` and :attr:`senders` are for others."""

    def __init__(
        self, order: StartFileTransfer, folders: NodeFolders, wait: Callable[[float], object] = time.sleep
    ) -> None:
        """``wait`` is called with seconds between attempts, and may return earlier when there are other senders."""
        self.senders = order.sources
        """Who is asked from now on, in this order."""
        self._model, self._files, self._folders, self._wait = order.spec.name, order.files, folders, wait
        self._headers = {"Authorization": f"Bearer {order.key}"}
        self._http = urllib3.PoolManager(timeout=_TIMEOUT, retries=False)
        self._progress = DownloadProgress()
        self._complete = 0
        self.total = sum(file.size for file in order.files)
        """Bytes of all files."""

    @property
    def done(self) -> int:
        """How many bytes are on this node."""
        return min(self.total, self._complete + self._progress.reading.bytes_downloaded)

    def run(self) -> FilesFetched:
        """Fetch what is missing; raises :class:`SourceError`."""
        missing = [file for file in self._files if self._folders.find(file) is None]
        self._complete = self.total - sum(file.size for file in missing)
        self._require_space(missing)
        for index, file in enumerate(missing, 1):
            try:
                self._fetch(file, index, len(missing))
            except OSError as problem:
                raise _of_disk(problem) from problem
        found = self._folders.found(self._model, self._files)
        if found is None:
            raise SourceError("a file was removed from this node meanwhile")
        return found

    def _require_space(self, files: list[TransferFile]) -> None:
        """Raise :class:`SourceError` if what is missing does not fit on the disks where it goes."""
        needed: dict[int, tuple[Path, int]] = {}
        for file in files:
            place = self._folders.place(file)
            folder = _existing(place.content.parent)
            there = disk.size_of(place.content) if place.link else 0
            rest = file.size - max(there, disk.size_of(_partial(place, file)))
            _, size = needed.get(folder.stat().st_dev, (folder, 0))
            needed[folder.stat().st_dev] = (folder, size + max(0, rest))
        for folder, size in needed.values():
            disk.require_free_space(folder, size)

    def _fetch(self, file: TransferFile, index: int, files: int) -> None:
        place = self._folders.place(file)
        partial = _partial(place, file)
        self._progress.begin(file.name, index, files, file.size)
        with disk.locked(self._lock(place), lambda: self._progress.at(disk.size_of(partial))):
            place.content.parent.mkdir(parents=True, exist_ok=True)
            if not _is_there(place, file):
                self._complete_file(file, partial)
                os.utime(partial, ns=(file.mtime_ns, file.mtime_ns))
                partial.replace(place.content)
                _remove_others(place)
            if place.link is not None:
                _make_link(place)
        self._complete += file.size
        self._progress.begin("", index, files, 0)

    def _lock(self, place: FilePlace) -> Path:
        if place.link is not None:  # where the hub's library has its own
            repository = place.link.parent.parent
            return repository.parent / ".locks" / repository.name / f"{place.link.name}.lock"
        digest = hashlib.sha256(os.fsencode(place.path)).hexdigest()[:16]
        return self._folders.cache / ".file_locks" / digest

    def _complete_file(self, file: TransferFile, partial: Path) -> None:
        """Fetch the missing part of a file and check it; a part that an earlier job left may be damaged."""
        if disk.size_of(partial) > file.size:
            partial.unlink()
        left_behind = disk.size_of(partial) > 0
        try:
            self._receive(file, partial)
        except _DamagedError as problem:
            if not left_behind:
                raise SourceError(str(problem)) from problem
            self._receive(file, partial)

    def _receive(self, file: TransferFile, partial: Path) -> None:
        with PartialFile(partial, file.size, file.blob, self._progress, _SENDER) as content:
            self._ask_for_digest(file)  # a sender computes it meanwhile
            senders = _Rounds(self, content.tell)
            while content.tell() < file.size:
                with senders.next() as sender:
                    self._transfer(sender, file, content)
            digest = file.blob or self._digest(file)
            try:
                content.check(digest)
            except SourceError as problem:
                partial.unlink()
                raise _DamagedError(f"{Path(file.name).name}: {problem}") from problem

    def _transfer(self, sender: FileSender, file: TransferFile, content: PartialFile) -> None:
        begin = content.tell()
        headers = {**self._headers, "Range": f"bytes={begin}-"}
        response = self._get(sender, f"files/{file.id}", headers)
        try:
            if response.status != 206 or response.headers.get("Content-Range", "") != (
                f"bytes {begin}-{file.size - 1}/{file.size}"
            ):
                raise _RefusedError(response.status)
            while block := response.read(_BLOCK):
                content.write(block)
        finally:
            response.close()

    def _get(self, sender: FileSender, path: str, headers: dict[str, str]) -> urllib3.BaseHTTPResponse:
        return self._http.request(
            "GET", f"http://{sender.address}/{path}", headers=headers, preload_content=False, redirect=False
        )

    def _ask_for_digest(self, file: TransferFile) -> None:
        if file.blob or not file.size:
            return
        for sender in self.senders:
            try:
                self._get(sender, f"digests/{file.id}", self._headers).close()
            except HTTPError:
                continue
            return

    def _digest(self, file: TransferFile) -> str:
        """Return the sha256 of a file, as a sender computes it."""
        if not file.size:
            return hashlib.sha256().hexdigest()
        answers: list[int] = []
        senders = _Rounds(self, lambda: len(answers))
        end = time.monotonic() + PATIENCE_S + file.size / _LEAST_DIGEST_RATE
        while time.monotonic() < end:
            with senders.next() as sender:
                response = self._get(sender, f"digests/{file.id}", self._headers)
                try:
                    body = response.read(_BLOCK)
                finally:
                    response.close()
                if response.status == 200 and len(body) == _SHA256_LENGTH:
                    return body.decode("ascii", "replace")
                if response.status != 202:
                    raise _RefusedError(response.status)
                answers.append(response.status)  # it is computing
                self._wait(_PAUSE_S)
        raise SourceError(f"the sha256 of {Path(file.name).name} could not be computed in time")

    def wait(self) -> None:
        """Wait before all senders are asked again."""
        self._wait(_PAUSE_S)


class _Rounds:
    """Which sender is asked next: the same one as long as it makes progress, then the others in their order."""

    def __init__(self, receiver: FileReceiver, progress: Callable[[], int]) -> None:
        """``progress`` returns what grows with each success."""
        self._receiver, self._progress = receiver, progress
        self._next = 0
        self._since = time.monotonic()
        self._reached = progress()
        self._problems: dict[str, Exception] = {}

    @contextmanager
    def next(self) -> Iterator[FileSender]:
        """Yield the sender to ask. Its failure counts, and the next one comes; raises :class:`SourceError` when none helps."""
        while self._next >= len(senders := self._receiver.senders):
            if self._is_late:
                raise SourceError("no node that has the files can be reached")
            self._receiver.wait()
            self._next = 0
        sender = senders[self._next]
        try:
            yield sender
        except (HTTPError, _RefusedError) as problem:
            self._failed(sender, problem)

    @property
    def _is_late(self) -> bool:
        return time.monotonic() - self._since > PATIENCE_S

    def _failed(self, sender: FileSender, problem: Exception) -> None:
        reached = self._progress()
        if reached > self._reached:
            self._reached, self._since = reached, time.monotonic()
            self._problems.clear()
            return
        self._problems[sender.node] = problem
        self._next += 1
        everywhere = set(self._problems) >= {each.node for each in self._receiver.senders}
        changed = everywhere and all(
            isinstance(each, _RefusedError) and each.changed for each in self._problems.values()
        )
        if changed or self._is_late:
            reasons = "; ".join(f"{node}: {_in_words(each)}" for node, each in self._problems.items())
            detail = "; ".join(f"{node}: {each!r}" for node, each in self._problems.items())
            raise SourceError(reasons, detail) from problem


class _RefusedError(Exception):
    """A sender answered, but not with the file."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.changed = status == 410

    def __str__(self) -> str:
        return "the file has changed there" if self.changed else f"it answered with {self.args[0]}"


class _DamagedError(Exception):
    """All bytes are there, and their digest is wrong."""


def _in_words(problem: Exception) -> str:
    return str(problem) if isinstance(problem, _RefusedError) else "it cannot be reached"


def _of_disk(problem: OSError) -> SourceError:
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return SourceError("the disk of this node is full; what has arrived is kept for the next try", str(problem))
    return SourceError(f"a file could not be written: {os.strerror(problem.errno or 0)}", str(problem))


def _partial(place: FilePlace, file: TransferFile) -> Path:
    if place.link is not None:  # the name that the hub's library uses
        return place.link.with_name(f"{file.blob}{_PARTIAL}")
    return place.path.with_name(f".{place.path.name}.{file.id}{_PARTIAL}")


def _is_there(place: FilePlace, file: TransferFile) -> bool:
    """Return whether the content of a file is there, also of a blob that has no such name yet."""
    return disk.size_of(place.link) == file.size if place.link is not None else is_same(place.path, file)


def _remove_others(place: FilePlace) -> None:
    """Remove parts of former contents of the same file."""
    if place.link is None:
        for left in place.path.parent.glob(f".{_escaped(place.path.name)}.*{_PARTIAL}"):
            left.unlink(missing_ok=True)


def _escaped(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _make_link(place: FilePlace) -> None:
    """Give a blob its name in a snapshot."""
    path, link = place
    path.parent.mkdir(parents=True, exist_ok=True)
    target = os.path.relpath(str(link), path.parent)
    draft = path.with_name(f".{path.name}-{os.getpid()}")
    draft.unlink(missing_ok=True)
    draft.symlink_to(target)
    draft.replace(path)


def _existing(folder: Path) -> Path:
    while not folder.exists():
        folder = folder.parent
    return folder
