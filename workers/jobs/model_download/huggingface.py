"""Downloads from a Hugging Face hub, into the hub library's own cache, where other programs also find the files.

The library lists, authenticates, transfers and stores files. It does not continue a broken file across processes, so
the partial file (``blobs/ETAG.incomplete``, under the library's own lock) is handled here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import huggingface_hub
from huggingface_hub import constants, file_download
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled
from huggingface_hub.utils import build_hf_headers, disable_progress_bars  # type: ignore[attr-defined,unused-ignore]

from protocol.messages.model_files import CheckpointSource
from protocol.models import repository_files
from protocol.models.checkpoints import HubCheckpoint
from workers.files import gguf
from workers.files.errors import BrokenError
from workers.jobs import disk
from workers.jobs.errors import SourceError
from workers.jobs.model_download import huggingface_listing
from workers.jobs.model_download.huggingface_listing import RemoteFile
from workers.jobs.model_download.partial_file import PartialFile
from workers.jobs.progress import DownloadProgress

_MAX_HTTP_BYTES: Final = 50_000_000_000
"""Larger files are left entirely to the library's own transfer protocol."""
_CHUNK: Final = 128 << 10
_BEYOND: Final = 416


def fetch(checkpoint: HubCheckpoint, source: CheckpointSource, progress: DownloadProgress) -> int:
    """Bring all files of a checkpoint into the hub's cache; return how many. Raises :class:`SourceError`."""
    disable_progress_bars()
    # The default of 10 MB would make progress jump, and lose that much at each break.
    constants.DOWNLOAD_CHUNK_SIZE = _CHUNK
    # Older versions have a faster transfer that cannot write into our file.
    constants.HF_HUB_ENABLE_HF_TRANSFER = False  # type: ignore[attr-defined,unused-ignore]
    try:
        return _fetch(checkpoint, source, progress)
    except SourceError:
        raise
    except Exception as problem:  # the library raises errors of three HTTP libraries, depending on its version
        raise huggingface_listing.explain_hub_error(problem, checkpoint.repo) from problem


def _fetch(checkpoint: HubCheckpoint, source: CheckpointSource, progress: DownloadProgress) -> int:
    revision, found = huggingface_listing.list_repository(checkpoint.repo)
    files = _wanted(checkpoint, source, found)
    blobs = Path(constants.HF_HUB_CACHE) / checkpoint.folder / "blobs"
    disk.require_free_space(blobs, sum(_missing(blobs, remote) for remote in files))
    for index, remote in enumerate(files, 1):
        progress.begin(remote.name, index, len(files), remote.size)
        if remote.size <= _MAX_HTTP_BYTES and remote.etag:
            url = huggingface_hub.hf_hub_url(checkpoint.repo, remote.name, revision=revision)
            _transfer(url, remote, blobs, progress)
        else:
            _file(checkpoint.repo, remote.name)
        progress.end()
    # Files get their names when all are complete, and the file that lookups search for comes last.
    first = next(
        (remote.name for remote in files if remote.name.endswith(repository_files.GENAI_CONFIG)), files[0].name
    )
    for name in sorted((remote.name for remote in files), key=lambda name: name == first):
        _file(checkpoint.repo, name)
    return len(files)


def _wanted(checkpoint: HubCheckpoint, source: CheckpointSource, found: list[RemoteFile]) -> list[RemoteFile]:
    names = [remote.name for remote in found]
    wanted = repository_files.choose_files(names, checkpoint.variant)
    if not wanted:
        raise SourceError(
            f"{checkpoint.repo} has no file {checkpoint.variant!r}"
            if checkpoint.variant
            else f"{checkpoint.repo} has no GGUF and no {repository_files.GENAI_CONFIG}",
            absent=True,
        )
    by_name = {remote.name: remote for remote in found}
    if source.sha256 and by_name[wanted[0]].etag not in ("", source.sha256):
        raise SourceError(f"{checkpoint.repo} has a file that is not the one in the catalogue (its sha256 differs)")
    if source.mmproj:
        projector = repository_files.projector(names, source.mmproj)
        if not projector:
            raise SourceError(f"{checkpoint.repo} has no file {source.mmproj!r}", absent=True, param="mmproj")
        wanted = [*wanted, projector]
    files = [by_name[name] for name in dict.fromkeys(wanted)]
    empty = next((remote.name for remote in files if not remote.size and _is_gguf(remote)), "")
    if empty:
        raise SourceError(f"{empty} is empty at the hub")
    return files


def _is_gguf(remote: RemoteFile) -> bool:
    return remote.name.lower().endswith(".gguf")


def _missing(blobs: Path, remote: RemoteFile) -> int:
    there = disk.size_of(blobs / remote.etag) or disk.size_of(blobs / f"{remote.etag}.incomplete")
    return max(0, remote.size - there)


def _file(repo: str, name: str) -> None:
    """Let the library store a file under its name and ``main``."""
    huggingface_listing.retry_while_busy(
        lambda: huggingface_hub.hf_hub_download(
            repo, name, etag_timeout=2 * huggingface_listing.FIRST_RESPONSE_TIMEOUT_S
        )
    )


def _transfer(url: str, remote: RemoteFile, blobs: Path, progress: DownloadProgress) -> None:
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
    if _is_gguf(remote):
        try:
            gguf.read(path)
        except BrokenError as problem:
            raise SourceError(f"{problem} at the hub") from problem
