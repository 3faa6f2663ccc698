"""Downloads from a Hugging Face hub, into the hub library's own cache, where other programs also find the files.

The library lists, authenticates, transfers and stores files. It does not continue a broken file across processes;
`resumable_transfer` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import huggingface_hub
from huggingface_hub import constants
from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined,unused-ignore]

from protocol.messages.model_files import CheckpointSource
from protocol.models import repository_files
from protocol.models.checkpoints import HubCheckpoint
from workers.jobs import disk
from workers.jobs.errors import SourceError
from workers.jobs.model_download import huggingface_listing, resumable_transfer
from workers.jobs.model_download.huggingface_listing import RemoteFile
from workers.jobs.progress import DownloadProgress

_MAX_HTTP_BYTES: Final = 50_000_000_000
"""Larger files are left entirely to the library's own transfer protocol."""
_CHUNK: Final = 128 << 10


class _Listed(NamedTuple):
    """A part of a model as its repository has it."""

    part: str
    repo: str
    revision: str
    files: list[RemoteFile]
    blobs: Path


def fetch(wanted: Mapping[str, tuple[HubCheckpoint, CheckpointSource]], progress: DownloadProgress) -> int:
    """Bring all files of a model into the hub's cache; return how many. Raises :class:`SourceError`.

    ``wanted``: part of the model → its checkpoint; an empty name for the model itself. Nothing is fetched before all repositories
    were listed, so a missing part is known before gigabytes of the others are here.
    """
    disable_progress_bars()
    # The default of 10 MB would make progress jump, and lose that much at each break.
    constants.DOWNLOAD_CHUNK_SIZE = _CHUNK
    # Older versions have a faster transfer that cannot write into our file.
    constants.HF_HUB_ENABLE_HF_TRANSFER = False  # type: ignore[attr-defined,unused-ignore]
    list_repository = cache(huggingface_listing.list_repository)
    listed = []
    for part, (checkpoint, source) in wanted.items():
        with _explained(part, checkpoint.repo):
            revision, found = list_repository(checkpoint.repo)
            blobs = Path(constants.HF_HUB_CACHE) / checkpoint.folder / "blobs"
            listed.append(_Listed(part, checkpoint.repo, revision, wanted_files(checkpoint, source, found), blobs))
    missing = sum(_missing(each.blobs, remote) for each in listed for remote in each.files)
    disk.require_free_space(listed[0].blobs, missing)
    files = sum(len(each.files) for each in listed)
    index = 0
    # The parts come first: lookups begin with the model's own file.
    for each in reversed(listed):
        with _explained(each.part, each.repo):
            _transfer(each, index, files, progress)
        index += len(each.files)
    return files


@contextmanager
def _explained(part: str, repo: str) -> Iterator[None]:
    """Make every error a :class:`SourceError` that names the part."""
    try:
        yield
    except SourceError as problem:
        raise problem.of_part(part) from problem.__cause__
    except Exception as problem:  # the library raises errors of three HTTP libraries, depending on its version
        raise huggingface_listing.explain_hub_error(problem, repo).of_part(part) from problem


def _transfer(listed: _Listed, before: int, files: int, progress: DownloadProgress) -> None:
    for index, remote in enumerate(listed.files, before + 1):
        progress.begin(remote.name, index, files, remote.size)
        if remote.size <= _MAX_HTTP_BYTES and remote.etag:
            url = huggingface_hub.hf_hub_url(listed.repo, remote.name, revision=listed.revision)
            resumable_transfer.transfer(url, remote, listed.blobs, progress)
        else:
            _file(listed.repo, remote.name)
        progress.end()
    # Files get their names when all are complete, and the file that lookups search for comes last.
    names = [remote.name for remote in listed.files]
    first = next((name for name in names if name.endswith(repository_files.GENAI_CONFIG)), names[0])
    for name in sorted(names, key=lambda name: name == first):
        _file(listed.repo, name)


def wanted_files(checkpoint: HubCheckpoint, source: CheckpointSource, found: list[RemoteFile]) -> list[RemoteFile]:
    """Return the files of a repository that a checkpoint means, its main one first; raises :class:`SourceError`."""
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
    empty = next((remote.name for remote in files if not remote.size and remote.is_gguf), "")
    if empty:
        raise SourceError(f"{empty} is empty at the hub")
    return files


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
