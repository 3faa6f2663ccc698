"""``install`` and ``uninstall``: the backends, which are the programs that models run on."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from gateway.api.common.operations import CHANGE
from gateway.api.common.progress_events import PROGRESS_STREAM, CompleteEvent, ProgressWriter
from gateway.api.common.request_fields import MAX_NAME_LENGTH
from gateway.api.common.routes import HttpCaller, Progressing, route
from gateway.api.common.server_sent_events import event
from gateway.api.lemonade.downloads import DownloadJob
from protocol.messages.backend_installs import BackendDone, InstallBackend, UninstallBackend
from protocol.messages.model_files import DownloadReport
from protocol.models.recipes import DEFAULT_RECIPE
from protocol.wire import envelope

_Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_LENGTH)]
_VULKAN: Final = {"recipe": DEFAULT_RECIPE, "backend": "vulkan"}


class BackendRequest(msgspec.Struct):
    """A backend of a recipe."""

    recipe: _Name
    backend: _Name


class InstallRequest(BackendRequest):
    """A backend to install or update."""

    force: bool | None = None
    stream: bool | None = None
    subscribe: bool | None = None
    """Only with `stream`: false answers at once with the installation, and `downloads` shows its progress."""


class BackendAnswer(msgspec.Struct):
    """The backend is installed or removed."""

    status: Literal["success"]
    recipe: str
    backend: str
    version: str | msgspec.UnsetType = msgspec.UNSET


class InstallEventWriter(ProgressWriter):
    """The events of one installation."""

    def complete(self, report: bytes) -> bytes:
        """Return a ``complete`` event like a download's, with what was installed."""
        done = envelope.unpack_payload(report, BackendDone)
        return event(
            "complete",
            CompleteEvent(
                file_index=done.files,
                total_files=done.files,
                status="success",
                recipe=done.recipe,
                backend=done.backend,
            ),
        )


@route(
    "POST",
    "install",
    changes=True,
    stream=PROGRESS_STREAM,
    failures=CHANGE,
    examples={"with progress": {**_VULKAN, "stream": True}},
)
def install_backend(caller: HttpCaller, request: InstallRequest) -> BackendAnswer | DownloadJob | Progressing:
    """Installs or updates a backend.

    A client that hangs up does not stop the installation.
    """
    stream, force = bool(request.stream), bool(request.force)
    call = partial(InstallBackend, recipe=request.recipe, backend=request.backend, force=force)
    if stream and request.subscribe is False:
        return DownloadJob.of(caller.ask(partial(call, detached=True), DownloadReport), "backend")
    call = partial(call, progress=stream)
    return Progressing(call, InstallEventWriter()) if stream else _answer(caller.ask(call, BackendDone))


@route("POST", "uninstall", changes=True, failures=CHANGE, examples={"one": _VULKAN})
def uninstall_backend(caller: HttpCaller, request: BackendRequest) -> BackendAnswer:
    """Removes a backend; models that use it are unloaded."""
    return _answer(caller.ask(partial(UninstallBackend, recipe=request.recipe, backend=request.backend), BackendDone))


def _answer(done: BackendDone) -> BackendAnswer:
    return BackendAnswer("success", done.recipe, done.backend, done.version or msgspec.UNSET)
