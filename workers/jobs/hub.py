"""Fetching from a Hugging Face hub, into the hub library's own cache, where other programs find it too.

The library lists, authenticates, transfers and files; what it does not do across processes is going on with a
file that broke off, so the partial file (``blobs/ETAG.incomplete``, under the library's own lock) is kept here.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import huggingface_hub
from huggingface_hub import constants, file_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)
from huggingface_hub.utils import build_hf_headers, disable_progress_bars  # type: ignore[attr-defined,unused-ignore]

from protocol import checkpoints
from protocol.admin import Source
from protocol.checkpoints import HubPlace
from workers.jobs import disk
from workers.jobs.gauge import Gauge
from workers.jobs.trouble import SourceError

FIRST_CONTACT: Final = 5.0
"""Seconds for the hub's first answer: a closed network must not cost more before the next source is tried."""
_ATTEMPTS: Final = 3
_LONGEST_PAUSE: Final = 5.0
_MOST_OVER_HTTP: Final = 50_000_000_000
"""Larger files are left to the library's own transfer protocol, whole."""
_SHA256_DIGITS: Final = 64


class _Remote(NamedTuple):
    name: str
    size: int
    etag: str

    @property
    def sha256(self) -> str:
        return self.etag if len(self.etag) == _SHA256_DIGITS else ""


def fetch(place: HubPlace, source: Source, gauge: Gauge) -> int:
    """Bring all files of a checkpoint into the hub's cache; return how many. Raises :class:`SourceError`."""
    disable_progress_bars()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    # The default of 10 MB would make progress jump and lose that much at each break.
    constants.DOWNLOAD_CHUNK_SIZE = disk.BLOCK
    try:
        return _fetch(place, source, gauge)
    except SourceError:
        raise
    except Exception as problem:  # the library raises those of two HTTP libraries, by its version
        raise _explained(problem, place) from problem


def _fetch(place: HubPlace, source: Source, gauge: Gauge) -> int:
    revision, found = _listing(place.repo)
    names = [remote.name for remote in found]
    wanted = checkpoints.choose(names, place.variant)
    if not wanted:
        raise SourceError(
            f"{place.repo} has no file {place.variant!r}" if place.variant else f"{place.repo} has no GGUF"
        )
    files = [remote for name in wanted for remote in found if remote.name == name]
    if source.sha256 and files[0].sha256 not in ("", source.sha256):
        raise SourceError(f"{place.repo} has another file than the catalogue knows (sha256 differs)")
    if source.mmproj:
        projector = checkpoints.projector(names, source.mmproj)
        if not projector:
            raise SourceError(f"{place.repo} has no file {source.mmproj!r}")
        files += [remote for remote in found if remote.name == projector]
    blobs = Path(constants.HF_HUB_CACHE) / place.folder / "blobs"
    disk.need(blobs, sum(_missing(blobs, remote) for remote in files))
    for index, remote in enumerate(files, 1):
        gauge.begin(remote.name, index, len(files), remote.size)
        if remote.size <= _MOST_OVER_HTTP and remote.etag:
            url = huggingface_hub.hf_hub_url(place.repo, remote.name, revision=revision)
            _transfer(url, remote, blobs, gauge)
        huggingface_hub.hf_hub_download(place.repo, remote.name, etag_timeout=2 * FIRST_CONTACT)
        gauge.end()
    return len(files)


def _listing(repo: str) -> tuple[str, list[_Remote]]:
    """Return the revision and the files of a repository; a busy hub is asked again, an absent one is not."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            info = huggingface_hub.HfApi().model_info(repo, files_metadata=True, timeout=FIRST_CONTACT)
            break
        except HfHubHTTPError as problem:
            pause = _pause(problem)
            if pause is None or attempt == _ATTEMPTS:
                raise
            time.sleep(pause)
    files = [
        _Remote(file.rfilename, file.size or 0, (file.lfs.sha256 if file.lfs else file.blob_id) or "")
        for file in info.siblings or []
    ]
    return info.sha or "main", files


def _pause(problem: HfHubHTTPError) -> float | None:
    """Return how long a hub that is only busy wants to be left alone, None if it is not that."""
    if _status(problem) not in (429, 502, 503, 504):
        return None
    given = str(problem.response.headers.get("Retry-After", "1"))
    return min(float(given), _LONGEST_PAUSE) if given.isdigit() else 1.0


def _missing(blobs: Path, remote: _Remote) -> int:
    there = disk.size_of(blobs / remote.etag) or disk.size_of(blobs / f"{remote.etag}.incomplete")
    return max(0, remote.size - there)


def _transfer(url: str, remote: _Remote, blobs: Path, gauge: Gauge) -> None:
    """Bring one file into the cache as a blob, going on where an earlier job stopped."""
    blob, partial = blobs / remote.etag, blobs / f"{remote.etag}.incomplete"
    lock = Path(constants.HF_HUB_CACHE) / ".locks" / blobs.parent.name / f"{remote.etag}.lock"
    with disk.locked(lock, lambda: gauge.at(disk.size_of(partial))):
        if blob.exists():
            return
        blobs.mkdir(parents=True, exist_ok=True)
        if disk.size_of(partial) > remote.size:
            partial.unlink()
        with _Partial(partial, gauge) as file:
            _receive(url, remote, file)
            digest = file.sha256()
        if remote.sha256 and digest != remote.sha256:
            partial.unlink()
            raise SourceError(f"{remote.name} came damaged (sha256 differs); it was thrown away")
        partial.replace(blob)


def _receive(url: str, remote: _Remote, file: _Partial) -> None:
    """Let the library write what is missing of a file, again as long as each transfer brings something."""
    while True:
        before = file.tell()
        try:
            file_download.http_get(
                url,
                file,  # type: ignore[arg-type]
                resume_size=before,
                headers=build_hf_headers(),
                expected_size=remote.size,
            )
            return
        except (HfHubHTTPError, OfflineModeIsEnabled):
            raise
        except Exception:
            # The versions of the library differ in which broken transfers they take up again themselves.
            if file.failed or file.tell() <= before:
                raise


class _Partial:
    """The partial file as the library writes it: counts for the gauge and digests as it goes."""

    def __init__(self, path: Path, gauge: Gauge) -> None:
        self._path = path
        self._gauge = gauge
        self._file = path.open("ab+", buffering=0)
        self._digest = hashlib.sha256()
        self._in_order = True
        self.failed = False
        """Whether the disk, not the hub, broke the transfer off."""
        self._file.seek(0)
        while block := self._file.read(disk.BLOCK):
            self._digest.update(block)
        gauge.at(self.tell())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def tell(self) -> int:
        return self._file.tell()

    def write(self, data: bytes) -> int:
        rest = memoryview(data)
        self.failed = True
        while rest:
            rest = rest[self._file.write(rest) :]
        self.failed = False
        self._digest.update(data)
        self._gauge.at(self.tell())
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._in_order = False
        return self._file.seek(offset, whence)

    def truncate(self, size: int | None = None) -> int:
        self._in_order = False
        return self._file.truncate(size)

    def flush(self) -> None:
        self._file.flush()

    def sha256(self) -> str:
        os.fsync(self._file.fileno())
        return self._digest.hexdigest() if self._in_order else disk.sha256(self._path)


def _status(problem: Any) -> int:
    return int(getattr(getattr(problem, "response", None), "status_code", 0) or 0)


def _explained(problem: Exception, place: HubPlace) -> SourceError:
    """Return what may be said of a failure: never the library's own text, which has addresses in it."""
    detail = f"{type(problem).__name__}: {problem}"
    match problem:
        case OfflineModeIsEnabled():
            return SourceError("offline mode is on", detail, offline=True)
        case GatedRepoError():
            return SourceError(f"{place.repo} is gated: accept its terms at the hub and set HF_TOKEN", detail)
        case RepositoryNotFoundError():
            return SourceError(f"there is no repository {place.repo}, or it is private (HF_TOKEN)", detail)
        case EntryNotFoundError():
            return SourceError(f"{place.repo} has no file {place.variant!r}", detail)
        case HfHubHTTPError() if _status(problem):
            return SourceError(f"the hub answered {_status(problem)}", detail)
    if isinstance(problem, OSError) and problem.errno and type(problem).__module__ == "builtins":
        return SourceError(f"the file could not be written: {os.strerror(problem.errno)}", detail)
    kind = type(problem).__name__
    if "Connect" in kind or "Timeout" in kind or "Proxy" in kind:
        return SourceError("the hub cannot be reached", detail)
    return SourceError(f"the transfer broke off ({kind})", detail)
