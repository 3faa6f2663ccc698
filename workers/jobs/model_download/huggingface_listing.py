"""Lists a repository of a Hugging Face hub, and explains the hub's errors."""

from __future__ import annotations

import email.utils
import errno
import itertools
import logging
import re
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeVar

import huggingface_hub
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)

from protocol.runtime.memory import limited_growth
from workers.jobs.errors import SourceError, not_written

T = TypeVar("T")

FIRST_RESPONSE_TIMEOUT_S: Final = 5.0
"""Seconds to wait for the hub's first answer: a closed network must not cost more before the next source is tried."""
MAX_RETRY_TIME_S: Final = 20.0
"""Seconds to wait for a busy hub, all pauses together."""
_MAX_LISTING_MEMORY: Final = 512 << 20
"""Bytes that a listing may take, unpacked and decoded: the library reads an answer of any length. 100,000 files take 150 MB."""
_ATTEMPTS: Final = 3
_FIRST_PAUSE: Final = 0.3
_BUSY: Final = (429, 502, 503, 504)
_ERRNO: Final = re.compile(r"\[Errno (-?\d+)\]")
_DIGEST: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class RemoteFile(NamedTuple):
    """A file of a repository. ``etag``: its sha256, or for small files git's own digest; empty if unknown."""

    name: str
    size: int
    etag: str

    @property
    def is_gguf(self) -> bool:
        """Whether it is a GGUF file, by its name."""
        return self.name.lower().endswith(".gguf")


class RepositoryListing(NamedTuple):
    """The present state of a repository."""

    revision: str
    files: list[RemoteFile]


def list_repository(repo: str) -> RepositoryListing:
    """Ask the hub for a repository's files; raises what the library does."""
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    with limited_growth(_MAX_LISTING_MEMORY):
        info = retry_while_busy(
            lambda: huggingface_hub.HfApi().model_info(repo, files_metadata=True, timeout=FIRST_RESPONSE_TIMEOUT_S)
        )
    found = [
        RemoteFile(file.rfilename, file.size or 0, _digest((file.lfs.sha256 if file.lfs else file.blob_id) or ""))
        for file in info.siblings or []
    ]
    return RepositoryListing(info.sha or "main", [remote for remote in found if _is_inside_repository(remote.name)])


def _digest(given: str) -> str:
    """Return the name of a file in the cache if it is a digest, because a hub may not choose a path on this machine."""
    return given if _DIGEST.fullmatch(given) else ""


def _is_inside_repository(name: str) -> bool:
    return name.isprintable() and "\\" not in name and not {"", ".", ".."} & set(name.split("/"))


def retry_while_busy(ask: Callable[[], T]) -> T:
    """Ask the hub. If it is only busy, ask again after the time it wants; if it is absent, do not."""
    waited = 0.0
    for attempt in itertools.count(1):
        try:
            return ask()
        except HfHubHTTPError as problem:
            if status_of(problem) not in _BUSY:
                raise
            pause = _retry_after(problem)
            pause = _FIRST_PAUSE * 2**attempt if pause is None else pause
            waited += pause
            if attempt == _ATTEMPTS or waited > MAX_RETRY_TIME_S:
                raise
            time.sleep(pause)
    raise AssertionError


def status_of(problem: Any) -> int:
    """Return the HTTP status in an exception of the library, 0 if it has none."""
    return int(getattr(getattr(problem, "response", None), "status_code", 0) or 0)


def _retry_after(problem: Any) -> float | None:
    """Return the seconds of ``Retry-After``, which may be a date, or None."""
    headers = getattr(getattr(problem, "response", None), "headers", None) or {}
    given = str(headers.get("Retry-After") or "")
    if given.isdecimal():
        return float(given)
    try:
        return max(0.0, (email.utils.parsedate_to_datetime(given) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None


def explain_hub_error(problem: Exception, repo: str) -> SourceError:
    """Return a failure for clients, without the library's own text, which contains addresses."""
    detail = f"{type(problem).__name__}: {problem}"
    if isinstance(problem, LocalEntryNotFoundError) and isinstance(problem.__cause__, Exception):
        return explain_hub_error(problem.__cause__, repo)
    match problem:
        case OfflineModeIsEnabled():
            return SourceError("offline mode is on", detail, offline=True)
        case GatedRepoError():
            return SourceError(f"{repo} is gated: accept its terms at the hub and set HF_TOKEN", detail, forbidden=True)
        case RepositoryNotFoundError():
            message = f"there is no repository {repo}, or it is private (HF_TOKEN)"
            return SourceError(message, detail, absent=True)
        case EntryNotFoundError():
            return SourceError(f"{repo} has been changed at the hub: a file is gone", detail)
        case HfHubHTTPError() if status_of(problem):
            return _refused(problem, repo, detail)
    if isinstance(problem, OSError) and problem.errno and type(problem).__module__ == "builtins":
        return not_written(problem, detail)
    if isinstance(problem, (MemoryError, ValueError, KeyError, TypeError, AttributeError)):
        large = f"takes more than {_MAX_LISTING_MEMORY >> 20} MiB of memory"
        what = large if isinstance(problem, MemoryError) else "could not be read"
        return SourceError(f"the hub's answer {what}", detail)
    kind = type(problem).__name__
    if "Connect" in kind or "Timeout" in kind or "Proxy" in kind:
        return SourceError(f"the hub cannot be reached ({_connection_problem(detail)})", detail, unreachable=True)
    return SourceError(f"the transfer broke off ({kind})", detail)


def _connection_problem(detail: str) -> str:
    """Return in words why there is no connection. Every HTTP library quotes the system's error number."""
    found = _ERRNO.search(detail)
    number = int(found[1]) if found else 0
    if number in (socket.EAI_AGAIN, socket.EAI_NONAME):
        return "its name cannot be resolved: is there a network?"
    if number in (errno.ENETUNREACH, errno.EHOSTUNREACH):
        return "there is no network"
    return "it refuses connections" if number == errno.ECONNREFUSED else "it does not answer"


def _refused(problem: HfHubHTTPError, repo: str, detail: str) -> SourceError:
    status = status_of(problem)
    if status in (401, 403):
        message = f"the hub refuses {repo} ({status}): is HF_TOKEN right, and may it read this?"
        return SourceError(message, detail, forbidden=True)
    pause = _retry_after(problem) or 0.0
    wanted = f" and asks to wait {pause:.0f} s" if pause else ""
    return SourceError(f"the hub answered {status}{wanted}", detail, retry_after=pause)
