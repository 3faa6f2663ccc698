"""Fetches model files from other nodes: the missing part of each file, from one sender after another, checked by its digest.

A partial file has a name that belongs to the content, so a later job goes on where this one has ended. The digest is the one
that the head knows: a sender of other bytes is not asked again. What no sender gives is downloaded, if it can be.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import urllib3
from msgspec import structs

from protocol.messages.model_transfer import FileRoot, FileSender, FilesPresent, StartFileTransfer, TransferFile
from protocol.runtime import logs
from workers.jobs import disk
from workers.jobs.errors import SourceError, not_written
from workers.jobs.model_download.partial_file import DamagedError, PartialFile, has_digest
from workers.jobs.model_transfer import file_places
from workers.jobs.model_transfer.file_places import FilePlace, NodeFolders
from workers.jobs.model_transfer.sender_rounds import (
    OTHER_BYTES,
    PATIENCE_S,
    NotSentError,
    SenderRounds,
    SendersError,
)
from workers.jobs.progress import DownloadProgress, SummedProgress

PATIENCE_BEFORE_DOWNLOAD_S: Final = 10.0
"""The same as :data:`PATIENCE_S` for a model that can be downloaded."""
_PAUSE_S: Final = 0.5
"""Between two rounds of all senders, and between two looks for a digest."""
_TIMEOUT: Final = urllib3.Timeout(connect=5.0, read=20.0)
_LEAST_DIGEST_RATE: Final = 10_000_000
"""Bytes per second that the head reads from its disk for a digest."""
_BLOCK: Final = 256 << 10
_SENDER: Final = "the head"

log = logs.get_logger()

Download = Callable[[DownloadProgress], None]
"""Downloads the model into the folders of this node; raises :class:`SourceError`."""


class FileReceiver:
    """One transfer of all missing files of a model. Runs in a thread; :attr:`done`, :attr:`senders` and :attr:`digests` are for others."""

    def __init__(
        self,
        order: StartFileTransfer,
        folders: NodeFolders,
        wait: Callable[[float], object] = time.sleep,
        download: Download | None = None,
    ) -> None:
        """``wait`` is called with seconds between attempts, and may return earlier when there are other senders.

        ``download``: what else brings the files; None if nothing does.
        """
        self.senders = order.senders
        """Who is asked from now on, in this order."""
        self.digests: Mapping[str, str] = {}
        """Id → sha256, of files that the head has read."""
        self._model, self._files, self._folders, self._wait = order.spec.name, order.files, folders, wait
        self._download = download
        self._patience = PATIENCE_S if download is None else PATIENCE_BEFORE_DOWNLOAD_S
        self._headers = {"Authorization": f"Bearer {order.key}"}
        self._http = urllib3.PoolManager(timeout=_TIMEOUT, retries=False)
        self._progress = SummedProgress()
        self._complete = 0
        self._refused: dict[str, None] = {}
        """Nodes that have sent other bytes."""
        self._compares = order.distrusted
        self._wrong: set[Path] = set()
        """Paths under which this node has other bytes than the head."""
        self.total = sum(file.size for file in order.files)
        """Bytes of all files."""

    @property
    def done(self) -> int:
        """How many bytes are on this node."""
        return min(self.total, self._complete + self._progress.bytes_downloaded)

    def run(self) -> FilesPresent:
        """Fetch what is missing; raises :class:`SourceError`."""
        try:
            if self._compares:
                self._remove_wrong()
            self._fetch_missing()
        except SendersError as problem:
            if self._download is None or any(file.root is FileRoot.OTHER for file in self._missing()):
                raise
            self._fetch_otherwise(self._download, problem)
        except OSError as problem:
            raise self._of_disk(problem) from problem
        found = self._folders.found(self._model, self._files)
        if found is None:
            raise SourceError("a file was removed from this node meanwhile")
        return structs.replace(found, refused=sorted(self._refused))

    def _missing(self) -> list[TransferFile]:
        return [file for file in self._files if self._folders.find(file, self._wrong) is None]

    def _remove_wrong(self) -> None:
        """Compare what is here with the head's digests. Copies with other bytes are removed; a path of the head's is not used."""
        for file in self._files:
            while (path := self._folders.find(file, self._wrong)) is not None:
                if has_digest(path, file.size, file.blob or self._digest(file)):
                    break
                log.error("this node has other bytes of a model than the head", model=self._model, path=str(path))
                place = self._folders.place(file)
                if path == place.path:
                    place.content.unlink(missing_ok=True)
                else:
                    self._wrong.add(path)

    def _begin(self) -> list[TransferFile]:
        """Return what is missing, after noting how much is not."""
        missing = self._missing()
        self._progress, self._complete = SummedProgress(), self.total - sum(file.size for file in missing)
        return missing

    def _fetch_missing(self) -> None:
        missing = self._begin()
        self._require_space(missing)
        for index, file in enumerate(missing, 1):
            self._fetch(file, index, len(missing))

    def _fetch_otherwise(self, download: Download, problem: SendersError) -> None:
        """Download the model. If that fails, ask the senders again: the connection to them may have been broken for a while."""
        try:
            self._fetch_by_download(download, problem)
        except SourceError as failed:
            self._patience = PATIENCE_S - PATIENCE_BEFORE_DOWNLOAD_S
            try:
                self._fetch_missing()
            except SendersError:
                raise failed from None

    def _fetch_by_download(self, download: Download, problem: SendersError) -> None:
        """Download the model; raises :class:`SourceError` that also says why no node has sent it."""
        missing = self._begin()
        try:
            download(self._progress)
            for file in missing:
                self._take_downloaded(file)
        except SourceError as failed:
            raise SourceError(
                f"{problem}; {failed}", f"{problem.detail}; {failed.detail}", full=failed.full
            ) from failed
        except OSError as failed:
            raise self._of_disk(failed) from failed

    def _take_downloaded(self, file: TransferFile) -> None:
        """Give a downloaded file the name or the time that it has on the head, if it has the same content."""
        place = self._folders.place(file)
        if place.link is not None and file_places.is_there(place, file):
            file_places.make_link(place)
        elif place.link is None and self._has_content(place.path, file):
            os.utime(place.path, ns=(file.mtime_ns, file.mtime_ns))
        if self._folders.find(file) is None:
            raise SourceError(f"the download has another {Path(file.name).name} than the head")

    def _has_content(self, path: Path, file: TransferFile) -> bool:
        return disk.size_of(path) == file.size and disk.sha256(path) == self._digest(file)

    def _require_space(self, files: list[TransferFile]) -> None:
        """Raise :class:`SourceError` if what is missing does not fit on the disks where it goes."""
        needed: dict[int, tuple[Path, int]] = {}
        for file in files:
            folder = self._folders.place(file).content.parent
            device = file_places.existing(folder).stat().st_dev
            first, size = needed.get(device, (folder, 0))
            needed[device] = (first, size + self._rest(file))
        for folder, size in needed.values():
            disk.require_free_space(folder, size)

    def _rest(self, file: TransferFile) -> int:
        """Return how many bytes of a missing file have not arrived."""
        place = self._folders.place(file)
        there = disk.size_of(place.content) if place.link else 0
        return max(0, file.size - max(there, disk.size_of(file_places.partial(place, file))))

    def _fetch(self, file: TransferFile, index: int, files: int) -> None:
        place = self._folders.place(file)
        partial = file_places.partial(place, file)
        self._progress.begin(file.name, index, files, file.size)
        with disk.locked(self._lock(place), lambda: self._progress.at(disk.size_of(partial))):
            place.content.parent.mkdir(parents=True, exist_ok=True)
            if not file_places.is_there(place, file):
                self._complete_file(file, partial)
                os.utime(partial, ns=(file.mtime_ns, file.mtime_ns))
                partial.replace(place.content)
                file_places.remove_others(place)
            if place.link is not None:
                file_places.make_link(place)
        self._progress.end()

    def _lock(self, place: FilePlace) -> Path:
        if place.link is not None:  # where the hub's library has its own
            repository = place.link.parent.parent
            return repository.parent / ".locks" / repository.name / f"{place.link.name}.lock"
        digest = hashlib.sha256(os.fsencode(place.path)).hexdigest()[:16]
        return self._folders.cache / ".file_locks" / digest

    def _complete_file(self, file: TransferFile, partial: Path) -> None:
        """Fetch the missing part of a file and check it. A part that an earlier job left may be damaged, and a sender may be wrong."""
        if disk.size_of(partial) > file.size:
            partial.unlink()
        left_behind = disk.size_of(partial) > 0
        only = ""
        while (sent_by := self._receive(file, partial, only)) is not None:
            if left_behind:
                left_behind = False
            elif len(sent_by) > 1:  # one of them was wrong: which one, shows a file that has come from one alone
                only = sent_by[-1]
            else:
                self._refused.update(dict.fromkeys(sent_by))
                only = ""
                if not sent_by or not self._usable(only):
                    reasons = "; ".join(f"{node}: {OTHER_BYTES}" for node in self._refused)
                    raise SendersError(
                        f"{Path(file.name).name}: {reasons or 'its digest is not that of an empty file'}"
                    )

    def _receive(self, file: TransferFile, partial: Path, only: str) -> list[str] | None:
        """Fetch the missing part of a file, and check it. If it is wrong, delete it, and return the nodes that have sent it.

        ``only``: the one node to ask; empty: all.
        """
        sent_by: dict[str, None] = {}
        with PartialFile(partial, file.size, file.blob, self._progress, _SENDER) as content:
            senders = SenderRounds(
                lambda: self._usable(only), content.tell, lambda: self._wait(_PAUSE_S), self._patience
            )
            while content.tell() < file.size:
                with senders.next() as sender:
                    self._transfer(sender, file, content, sent_by)
            digest = file.blob or self._digest(file)
            try:
                content.check(digest)
            except DamagedError:
                partial.unlink()
                return list(sent_by)
        return None

    def _usable(self, only: str) -> list[FileSender]:
        return [each for each in self.senders if each.node not in self._refused and only in ("", each.node)]

    def _transfer(self, sender: FileSender, file: TransferFile, content: PartialFile, sent_by: dict[str, None]) -> None:
        begin = content.tell()
        headers = {**self._headers, "Range": f"bytes={begin}-"}
        response = self._http.request(
            "GET", f"http://{sender.address}/files/{file.id}", headers=headers, preload_content=False, redirect=False
        )
        try:
            if response.status != 206 or response.headers.get("Content-Range", "") != (
                f"bytes {begin}-{file.size - 1}/{file.size}"
            ):
                raise NotSentError(response.status)
            while block := response.read(_BLOCK):
                sent_by.pop(sender.node, None)
                sent_by[sender.node] = None  # the last one of them
                content.write(block)
        finally:
            response.close()

    def _digest(self, file: TransferFile) -> str:
        """Return the sha256 of a file, once the head has said it."""
        if not file.size:
            return hashlib.sha256().hexdigest()
        end = time.monotonic() + PATIENCE_S + file.size / _LEAST_DIGEST_RATE
        while not (digest := file.sha256 or self.digests.get(file.id, "")):
            if time.monotonic() > end:
                raise SourceError(f"the head has not said the sha256 of {Path(file.name).name} in time")
            self._wait(_PAUSE_S)
        return digest

    def _of_disk(self, problem: OSError) -> SourceError:
        unwritten = not_written(problem)
        if not unwritten.full:
            return unwritten
        missing = sum(map(self._rest, self._missing()))
        message = (
            f"the disk of this node is full: {missing} bytes have not arrived, and the others are kept for the next try"
        )
        return SourceError(message, unwritten.detail, full=True)
