"""``downloads``, ``downloads/control`` and ``downloads/pause``: what is being downloaded, and what can be done with it.

The shapes are those of the page "Lemonade API" of Lemonade 11.8 (``docs/api/lemonade.md``) and of its ``download_manager.cpp``. The
action ``resume``, ``code`` and ``downloads/pause`` are ours.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from gateway.api.common.operations import BODY, CHANGE, CONFLICT, NOT_FOUND
from gateway.api.common.progress_events import ProgressEvent, progress_values
from gateway.api.common.request_fields import MAX_NAME_LENGTH
from gateway.api.common.routes import HttpCaller, Nothing, route
from gateway.api.lemonade.load import NAME_FIELDS, NamedModel
from protocol.failures import Code, Failure, LemonbusError, printable
from protocol.messages.backend_installs import InstallBackend, ListInstalls, StopInstall
from protocol.messages.calls import Progress
from protocol.messages.model_files import CancelDownload, DownloadReport, ListDownloads, PauseDownload, PullModel

Kind = Literal["model", "backend"]
Status = Literal["downloading", "paused", "cancelled", "completed", "error"]
_NOT_BEGUN: Final = Progress(0, "", "", 0, 0, 0, 0)


class DownloadJob(ProgressEvent, kw_only=True):
    """A download of a model, or an installation of a backend; `percent` and the first two sizes are those of the present file."""

    id: str
    """`model:NAME` or `backend:RECIPE:BACKEND`."""
    type: Kind
    model_name: str
    """Of a backend: `RECIPE:BACKEND`."""
    status: Status
    running: bool
    complete: bool
    total_download_size: int = 0
    """Bytes of all files; 0: not known yet."""
    completed_files_bytes: int = 0
    """Bytes of the files before the present one."""
    cumulative_bytes_downloaded: int = 0
    overall_bytes_downloaded: int = 0
    """The same."""
    error: str | msgspec.UnsetType = msgspec.UNSET
    code: str | msgspec.UnsetType = msgspec.UNSET

    @classmethod
    def of(cls, report: DownloadReport, kind: Kind = "model") -> DownloadJob:
        """Return a download as ``downloads`` shows it."""
        progress, failure = report.progress or _NOT_BEGUN, report.failure
        status = _status(report)
        done = report.completed_bytes + progress.bytes_downloaded
        is_last = progress.file_index == progress.total_files
        job = cls(
            *progress_values(progress),
            id=f"{kind}:{report.model}",
            type=kind,
            model_name=report.model,
            status=status,
            running=not report.ended and not report.paused,
            complete=status == "completed",
            total_download_size=report.completed_bytes + progress.bytes_total if is_last else 0,
            completed_files_bytes=report.completed_bytes,
            cumulative_bytes_downloaded=done,
            overall_bytes_downloaded=done,
            error=failure.message if failure and status == "error" else msgspec.UNSET,
            code=failure.code.value if failure else msgspec.UNSET,
        )
        if job.complete:
            job.percent = 100
        return job


def _status(report: DownloadReport) -> Status:
    if report.failure is not None:
        return "cancelled" if report.failure.code is Code.OPERATOR_CANCELLED else "error"
    return "completed" if report.ended else "paused" if report.paused else "downloading"


class DownloadControl(msgspec.Struct):
    """A download, and what to do with it."""

    id: Annotated[str, Meta(min_length=1, max_length=MAX_NAME_LENGTH)]
    """As `downloads` shows it."""
    action: Literal["pause", "resume", "cancel", "remove"]
    """`cancel` keeps what was fetched, which `delete` removes. `remove` cancels as well, and no longer lists the download."""


class DownloadRemoved(msgspec.Struct, omit_defaults=True):
    """The download is no longer listed."""

    status: Literal["ok"]
    missing: bool = False
    """Whether it was not listed before."""


@route("GET", "downloads")
def list_downloads(caller: HttpCaller, _request: Nothing) -> list[DownloadJob]:
    """Lists downloads that run or are paused, those that failed or were cancelled, and complete ones for half a minute.

    Installations of backends are among them for administrators.
    """
    reports = caller.ask(ListDownloads, list[DownloadReport])
    found = [DownloadJob.of(report) for report in reports if caller.context.may_use(report.model)]
    if caller.context.is_admin:
        found += [DownloadJob.of(report, "backend") for report in caller.ask(ListInstalls, list[DownloadReport])]
    return found


@route(
    "POST",
    "downloads/control",
    changes=True,
    failures=CHANGE | CONFLICT,
    examples={"pause": {"id": "model:SmolLM2-135M-Instruct-GGUF", "action": "pause"}},
)
def control_download(caller: HttpCaller, request: DownloadControl) -> DownloadJob | DownloadRemoved:
    """Pauses, resumes, cancels or removes a download or an installation; the answer comes when it has stopped."""
    kind, _, name = request.id.partition(":")
    remove = request.action == "remove"
    try:
        if kind == "model":
            report = caller.ask(_download_call(request.action, name), DownloadReport)
        elif kind == "backend":
            report = caller.ask(_install_call(request.action, name), DownloadReport)
        else:
            raise Failure(Code.NOT_FOUND, f"there is no download {printable(request.id)}", param="id").raised()
    except LemonbusError as problem:
        if not remove or problem.failure.code is not Code.NOT_FOUND:
            raise
        return DownloadRemoved("ok", missing=True)
    return DownloadRemoved("ok") if remove else DownloadJob.of(report, "backend" if kind == "backend" else "model")


def _download_call(action: str, model: str) -> Callable[[int], msgspec.Struct]:
    if action == "pause":
        return partial(PauseDownload, model=model)
    if action == "resume":
        return partial(PullModel, model=model, detached=True)
    return partial(CancelDownload, model=model, remove=action == "remove")


def _install_call(action: str, name: str) -> Callable[[int], msgspec.Struct]:
    if action == "resume":
        recipe, _, backend = name.partition(":")
        return partial(InstallBackend, recipe=recipe, backend=backend, detached=True)
    return partial(StopInstall, name=name, pause=action == "pause", remove=action == "remove")


@route(
    "POST",
    "downloads/pause",
    changes=True,
    needs=NAME_FIELDS,
    failures=BODY | NOT_FOUND | CONFLICT,
    examples={"one": {"model_name": "SmolLM2-135M-Instruct-GGUF"}},
)
def pause_download(caller: HttpCaller, request: NamedModel) -> DownloadJob:
    """Pauses a download; the answer comes when it has stopped.

    What was fetched is kept. Requests for the model get 503 `download_paused` until a pull resumes the download. It stays
    paused when another supervisor takes over, and until the server ends.
    """
    caller.context.model = name = request.name
    return DownloadJob.of(caller.ask(lambda number: PauseDownload(number, name), DownloadReport))
