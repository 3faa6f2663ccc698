"""The transfer of one file from a Hugging Face hub, which continues where an earlier one was interrupted.

The hub's library writes the missing bytes into its own partial file (``blobs/ETAG.incomplete``), under its own lock.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from huggingface_hub import constants, file_download
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined,unused-ignore]

from workers.files import gguf
from workers.files.errors import BrokenError
from workers.jobs import disk
from workers.jobs.errors import SourceError
from workers.jobs.model_download import huggingface_listing
from workers.jobs.model_download.huggingface_listing import RemoteFile
from workers.jobs.model_download.partial_file import PartialFile
from workers.jobs.progress import DownloadProgress

_BEYOND: Final = 416


def transfer(url: str, remote: RemoteFile, blobs: Path, progress: DownloadProgress) -> None:
    """Download one file into the cache as a blob; continue where an earlier job stopped."""
    blob, partial = blobs / remote.etag, blobs / f"{remote.etag}.incomplete"
    lock = Path(constants.HF_HUB_CACHE) / ".locks" / blobs.parent.name / f"{remote.etag}.lock"
    with disk.locked(lock, lambda: progress.at(disk.size_of(partial))):
        if blob.exists() and blob.stat().st_size == remote.size:
            _check(remote, blob)
            return
        blobs.mkdir(parents=True, exist_ok=True)
        if disk.size_of(partial) > remote.size:
            partial.unlink()
        left_behind = disk.size_of(partial) > 0
        try:
            _complete(url, remote, partial, progress)
        except SourceError:
            if not left_behind:
                raise
            # A power failure may have damaged the partial file of an earlier job.
            _complete(url, remote, partial, progress)
        partial.replace(blob)


def _complete(url: str, remote: RemoteFile, partial: Path, progress: DownloadProgress) -> None:
    """Fetch the missing part of a file and check it. If it is wrong, delete it and raise :class:`SourceError`."""
    try:
        with PartialFile(partial, remote.size, remote.etag, progress) as file:
            _receive(url, remote, file)
            file.check()
        _check(remote, partial)
    except SourceError as problem:
        partial.unlink()
        raise SourceError(f"{remote.name}: {problem}; it was deleted", problem.detail) from problem


def _receive(url: str, remote: RemoteFile, file: PartialFile) -> None:
    """Let the library write the missing part of a file; try again as long as each transfer adds bytes."""
    while True:
        before = file.tell()
        try:
            huggingface_listing.retry_while_busy(lambda: _ask(url, remote, file))
            return
        except OfflineModeIsEnabled:
            raise
        except HfHubHTTPError as problem:
            if huggingface_listing.status_of(problem) == _BEYOND:
                raise SourceError(f"it ends before the {remote.size} bytes that the hub announced") from problem
            raise
        except Exception:
            # Versions of the library differ in which broken transfers they resume themselves.
            if file.failed or file.tell() <= before:
                raise


def _ask(url: str, remote: RemoteFile, file: PartialFile) -> None:
    file_download.http_get(
        url,
        file,  # type: ignore[arg-type]
        resume_size=file.tell(),
        headers=build_hf_headers(),
        expected_size=remote.size,
    )


def _check(remote: RemoteFile, path: Path) -> None:
    """Raise a :class:`SourceError` for a GGUF that is broken at the hub."""
    if remote.is_gguf:
        try:
            gguf.read(path)
        except BrokenError as problem:
            raise SourceError(f"{problem} at the hub") from problem
