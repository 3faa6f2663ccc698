"""Downloads one file of a release by its address and sha256. A broken download is continued, even by a later job.

The partial file is named after the sha256 that the whole file must have, so partial files of two archives never mix.
"""

from __future__ import annotations

import os
import re
import ssl
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3 import exceptions as urllib3_errors

from protocol.messages.backend_installs import Archive
from workers.jobs import disk
from workers.jobs.backend_install.archive_names import name_of, partial_name
from workers.jobs.errors import SourceError, not_written
from workers.jobs.progress import DownloadProgress

CONNECT_TIMEOUT_S: Final = 10.0
READ_TIMEOUT_S: Final = 30.0
"""Seconds without a byte after which a transfer has failed."""
_ATTEMPTS: Final = 3
_LONGEST_PAUSE_S: Final = 5.0
_BLOCK_BYTES: Final = 16 * 1024
"""Bytes that may be lost when a transfer breaks."""
_BUSY: Final = (429, 502, 503, 504)
_CONTENT_RANGE: Final = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")
_HEADERS: Final = {"User-Agent": "lemonbus", "Accept-Encoding": "identity"}
"""The bytes must be those of the sha256, so no server may compress them once more."""
TRANSFER_ERRORS: Final = (requests.RequestException, urllib3_errors.HTTPError, OSError)
"""Errors of requests, and of urllib3 while a body is read."""


class _SystemTrust(HTTPAdapter):
    """Trusts the certificate authorities of this machine as well as those that requests contains."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, ssl_context=ssl.create_default_context(), **kwargs)

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        return super().proxy_manager_for(*args, ssl_context=ssl.create_default_context(), **kwargs)


def fetch(archive: Archive, folder: Path, progress: DownloadProgress) -> Path:
    """Return the whole file, checked; raises :class:`SourceError`. The partial file of a broken transfer stays."""
    partial = folder / partial_name(archive)
    name = name_of(archive.url)
    progress.begin(name, 1, 1, 0, disk.size_of(partial))
    failures = 0
    with requests.Session() as session:
        session.mount("https://", _SystemTrust())
        while True:
            before = disk.size_of(partial)
            try:
                _transfer(session, archive.url, partial, name, progress)
                break
            except TRANSFER_ERRORS as problem:
                failures = 0 if disk.size_of(partial) > before else failures + 1
                pause = _pause(problem)
                if pause is None or failures >= _ATTEMPTS:
                    raise _explain_transfer_error(problem, archive.url) from problem
                time.sleep(pause if failures else 0.0)
    if disk.sha256(partial) != archive.sha256:
        partial.unlink()
        raise SourceError(f"{name} is not the file that was pinned (its sha256 differs); it was deleted")
    progress.end()
    return partial


def _transfer(session: requests.Session, url: str, partial: Path, name: str, progress: DownloadProgress) -> None:
    """Append the missing part of the file; raises one of :data:`TRANSFER_ERRORS` if the transfer fails."""
    there = disk.size_of(partial)
    headers = {**_HEADERS, **({"Range": f"bytes={there}-"} if there else {})}
    with session.get(url, headers=headers, stream=True, timeout=(CONNECT_TIMEOUT_S, READ_TIMEOUT_S)) as response:
        if response.status_code == requests.codes.requested_range_not_satisfiable:
            if response.headers.get("Content-Range", "") == f"bytes */{there}":
                return  # nothing is missing, or it is part of another file: the sha256 decides
            partial.unlink()
            raise ConnectionError("the partial file is longer than the file at this address")
        response.raise_for_status()
        start, total = _extent(response, there)
        disk.require_free_space(partial.parent, max(0, total - start))
        progress.begin(name, 1, 1, total, start)
        done = _write(partial, response.raw.stream(_BLOCK_BYTES, decode_content=False), progress, start)
    if total and done < total:
        raise ConnectionError(f"it broke off after {done} of {total} bytes")


def _write(partial: Path, blocks: Iterable[bytes], progress: DownloadProgress, start: int) -> int:
    """Write blocks after the first ``start`` bytes; return the resulting size of the file."""
    try:
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as problem:
        raise not_written(problem) from problem
    with open(handle, "wb", buffering=0) as file:  # noqa: PTH123 - opened above, not to be emptied
        try:
            file.truncate(start)
            file.seek(start)
        except OSError as problem:
            raise not_written(problem) from problem
        done = start
        for block in blocks:
            rest = memoryview(block)
            try:
                while rest:
                    rest = rest[file.write(rest) :]
            except OSError as problem:
                raise not_written(problem) from problem
            done += len(block)
            progress.at(done)
        os.fsync(handle)
    return done


def _extent(response: requests.Response, there: int) -> tuple[int, int]:
    """Return the offset in the file where the response's bytes begin, and the file's size (0: unknown)."""
    length = response.headers.get("Content-Length", "")
    if response.status_code == requests.codes.partial_content:
        found = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if found and int(found[1]) <= there:
            return int(found[1]), int(found[2]) if found[2].isdigit() else 0
        return 0, 0
    return 0, int(length) if length.isdigit() and response.status_code == requests.codes.ok else 0


def _pause(problem: Exception) -> float | None:
    """Return the seconds until the next attempt, None if another one would not help."""
    if isinstance(problem, requests.HTTPError) and problem.response is not None:
        given = problem.response.headers.get("Retry-After", "1")
        pause = min(float(given), _LONGEST_PAUSE_S) if given.isdigit() else 1.0
        return pause if problem.response.status_code in _BUSY else None
    return 0.2


def _explain_transfer_error(problem: Exception, url: str) -> SourceError:
    """Return the part of a failure that a client may read: of the address, only the host."""
    host = urlsplit(url).hostname or "the release server"
    detail = f"{url}: {type(problem).__name__}: {problem}"
    if isinstance(problem, requests.HTTPError) and problem.response is not None:
        return SourceError(f"{host} answered {problem.response.status_code} for {name_of(url)}", detail)
    if isinstance(problem, requests.ConnectionError | requests.Timeout):
        return SourceError(f"{host} cannot be reached", detail)
    return SourceError(f"the transfer from {host} broke off", detail)
