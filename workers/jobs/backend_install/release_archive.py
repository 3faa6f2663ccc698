"""Fetching one file of a release: by its address and sha256, going on where an earlier job stopped.

The piece that is there is named by the sha256 that the whole file must have, so that pieces of two never meet.
"""

from __future__ import annotations

import http.client
import os
import re
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from protocol.messages.backend_installs import Archive
from workers.jobs import disk
from workers.jobs.errors import SourceError
from workers.jobs.progress import DownloadProgress

READ_TIMEOUT_S: Final = 30.0
"""Seconds without a byte after which a transfer has failed."""
_ATTEMPTS: Final = 3
_LONGEST_PAUSE: Final = 5.0
_BLOCK: Final = disk.BLOCK_BYTES // 4
_RANGE: Final = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


class ReadableResponse(Protocol):
    """Where bytes come from, as they come."""

    def read1(self, size: int, /) -> bytes: ...  # noqa: D102


def name_of(url: str) -> str:
    """Return the file's name as it may be shown."""
    return unquote(urlsplit(url).path).rsplit("/", 1)[-1] or "archive"


def partial_name(archive: Archive) -> str:
    """Return the name of the file that an archive is downloaded into."""
    return f".download-{archive.sha256}"


def fetch(archive: Archive, folder: Path, progress: DownloadProgress) -> Path:
    """Return the whole file, checked; raises :class:`SourceError`. What came of a broken transfer stays."""
    partial = folder / partial_name(archive)
    name = name_of(archive.url)
    progress.begin(name, 1, 1, 0, disk.size_of(partial))
    failures = 0
    while True:
        before = disk.size_of(partial)
        try:
            _transfer(archive.url, partial, name, progress)
            break
        except (OSError, http.client.HTTPException) as problem:
            failures = 0 if disk.size_of(partial) > before else failures + 1
            pause = _pause(problem)
            if pause is None or failures >= _ATTEMPTS:
                raise _explain_transfer_error(problem, archive.url) from problem
            time.sleep(pause if failures else 0.0)
    if disk.sha256(partial) != archive.sha256:
        partial.unlink()
        raise SourceError(f"{name} is another file than the one that was pinned (sha256 differs); it was thrown away")
    progress.end()
    return partial


def _transfer(url: str, partial: Path, name: str, progress: DownloadProgress) -> None:
    """Append what is missing of the file; raises what the library raises, and OSError for a broken transfer."""
    there = disk.size_of(partial)
    headers = {"User-Agent": "lemonbus", **({"Range": f"bytes={there}-"} if there else {})}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - http and https by the pattern of the setting
    try:
        answer = urllib.request.urlopen(request, timeout=READ_TIMEOUT_S)  # noqa: S310
    except urllib.error.HTTPError as problem:
        problem.close()
        if problem.code != 416:
            raise
        # Nothing is left to send, or the piece is of another file: the digest tells.
        if problem.headers.get("Content-Range", "") == f"bytes */{there}":
            return
        partial.unlink()
        raise ConnectionError("the piece that was here fits no file there") from problem
    with answer:
        start, total = _extent(answer, there)
        disk.require_free_space(partial.parent, max(0, total - start))
        progress.begin(name, 1, 1, total, start)
        done = _transfer_into(partial, answer, progress, start)
        if total and done < total:
            raise ConnectionError(f"it broke off after {done} of {total} bytes")


def _transfer_into(partial: Path, source: ReadableResponse, progress: DownloadProgress, start: int) -> int:
    """Write what comes behind the first ``start`` bytes; return how much is there then."""
    try:
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as problem:
        raise _not_written(problem) from problem
    with open(handle, "wb", buffering=0) as file:  # noqa: PTH123 - opened above, not to be emptied
        try:
            file.truncate(start)
            file.seek(start)
        except OSError as problem:
            raise _not_written(problem) from problem
        done = start
        while block := source.read1(_BLOCK):
            rest = memoryview(block)
            try:
                while rest:
                    rest = rest[file.write(rest) :]
            except OSError as problem:
                raise _not_written(problem) from problem
            done += len(block)
            progress.at(done)
        os.fsync(handle)
    return done


def _not_written(problem: OSError) -> SourceError:
    said = os.strerror(problem.errno) if problem.errno else type(problem).__name__
    return SourceError(f"the file could not be written: {said}", str(problem))


def _extent(answer: Any, there: int) -> tuple[int, int]:
    """Return where in the file the answer's bytes begin, and the file's size (0: unknown)."""
    length = answer.headers.get("Content-Length", "")
    found = _RANGE.fullmatch(answer.headers.get("Content-Range", "")) if answer.status == 206 else None
    if found and int(found[1]) <= there:
        return int(found[1]), int(found[2]) if found[2].isdigit() else 0
    return 0, int(length) if length.isdigit() and answer.status == 200 else 0


def _pause(problem: Exception) -> float | None:
    """Return how long to wait before the next try, None if that would not help."""
    if isinstance(problem, urllib.error.HTTPError):
        given = str(problem.headers.get("Retry-After", "1"))
        pause = min(float(given), _LONGEST_PAUSE) if given.isdigit() else 1.0
        return pause if problem.code in (429, 502, 503, 504) else None
    return 0.2


def _explain_transfer_error(problem: Exception, url: str) -> SourceError:
    """Return what may be said of a failure: the host, and no more of the address."""
    host = urlsplit(url).hostname or "the release server"
    detail = f"{url}: {type(problem).__name__}: {problem}"
    if isinstance(problem, urllib.error.HTTPError):
        return SourceError(f"{host} answered {problem.code} for {name_of(url)}", detail)
    if isinstance(problem, urllib.error.URLError):
        return SourceError(f"{host} cannot be reached", detail)
    return SourceError(f"the transfer from {host} broke off", detail)
