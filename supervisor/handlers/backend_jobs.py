"""Installations and removals of backends in progress: one job process each, and the calls that wait for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from msgspec import structs

from protocol.failures import Code, Failure
from protocol.messages.backend_installs import (
    BackendDone,
    InstallBackend,
    Installed,
    InstallFailed,
    InstallProgress,
    StartInstall,
    StartUninstall,
    UninstallBackend,
)
from protocol.messages.calls import Progress
from protocol.runtime import logs
from supervisor.handlers.backend_downloads import BackendDownloads
from supervisor.runtime.decisions import Decisions
from supervisor.runtime.gateway_calls import GatewayCalls
from supervisor.runtime.handler_table import Handler
from supervisor.runtime.jobs import Jobs, OnEnded

MODULE: Final = "workers.jobs.install"

log = logs.get_logger()
Key = tuple[str, str]
"""Recipe and backend in the path of an installation."""
Call = InstallBackend | UninstallBackend


class BackendJob:
    """One installation or removal in progress."""

    def __init__(self, order: StartInstall | StartUninstall) -> None:
        """Not started yet."""
        self.key = (order.recipe, order.backend)
        self.order = order
        self.waiters: list[tuple[str, Call]] = []
        self.result: Installed | Failure | None = None
        self.then: list[Callable[[], None]] = []
        """Called when its job has ended and the waiting calls were answered."""

    @property
    def name(self) -> str:
        """``RECIPE:BACKEND``."""
        return ":".join(self.key)


class BackendJobs:
    """All of them, and the messages of their jobs."""

    def __init__(
        self,
        decisions: Decisions,
        jobs: Jobs,
        calls: GatewayCalls,
        downloads: BackendDownloads,
        changed: Callable[[], None],
    ) -> None:
        """None is in progress. ``changed``: called when other backends are installed than before."""
        self._decisions, self._jobs, self._calls = decisions, jobs, calls
        self._downloads, self._changed = downloads, changed
        self._tasks: dict[Key, BackendJob] = {}
        self._by_job: dict[str, BackendJob] = {}

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {InstallProgress: self._progress, Installed: self._result, InstallFailed: self._result}

    def join(self, key: Key, peer: str, call: Call, kind: type) -> bool:
        """Let a call wait for a running job of the same kind; raises ``conflict`` if the opposite job runs."""
        task = self._tasks.get(key)
        if task is None:
            return False
        if not isinstance(task.order, kind):
            doing = "installed" if isinstance(task.order, StartInstall) else "removed"
            raise Failure(Code.CONFLICT, f"backend {task.name} is currently being {doing}", param="backend").raised()
        self._wait(peer, call, task)
        return True

    def _wait(self, peer: str, call: Call, task: BackendJob) -> None:
        """Let a call wait for a job, unless it only wants to know that the job runs."""
        if isinstance(call, InstallBackend) and call.detached:
            self._calls.answer(peer, call.number, self._downloads.report(task.name))
        else:
            task.waiters.append((peer, call))

    def install(self, peer: str, call: InstallBackend, order: StartInstall) -> None:
        """Start an installation, for which a call waits."""
        task = self._tasks[order.recipe, order.backend] = BackendJob(order)
        self._start(task)
        self._wait(peer, call, task)

    def prepare(self, peer: str, call: UninstallBackend, order: StartUninstall) -> Callable[[], None]:
        """Let calls wait for a removal from now on; return what starts it."""
        task = self._tasks[order.recipe, order.backend] = BackendJob(order)
        self._wait(peer, call, task)
        return partial(self._start, task)

    def stop(self, job: str, why: Failure, then: Callable[[], None]) -> bool:
        """Stop a job unless it is complete, and call ``then`` when it has ended; return False if it does not run."""
        task = self._by_job.get(job)
        if task is None:
            return False
        task.then.append(then)
        if not isinstance(task.result, Installed):
            task.result = why
            self._jobs.kill(job)
        return True

    def _start(self, task: BackendJob) -> None:
        job = self._jobs.start(MODULE, self._ended, task.order)
        self._by_job[job] = task
        if isinstance(task.order, StartInstall):
            self._downloads.begin(job, task.name)
        log.info("backend job started", backend=task.name, order=type(task.order).__name__, job=job)

    def take_over(self, job: str, order: StartInstall | StartUninstall) -> OnEnded | None:
        """Register a job that an earlier supervisor started; None if another job does the same work."""
        key = (order.recipe, order.backend)
        if key in self._tasks:
            return None
        self._tasks[key] = self._by_job[job] = task = BackendJob(order)
        if isinstance(order, StartInstall):
            self._downloads.begin(job, task.name)
        return self._ended

    def _progress(self, job: str, message: InstallProgress, _payload: bytes) -> None:
        task = self._by_job.get(job)
        self._downloads.progressed(job, message)
        for peer, call in task.waiters if task else ():
            if isinstance(call, InstallBackend) and call.progress:
                name = f"{call.recipe}:{call.backend}"
                self._calls.tell(peer, Progress(call.number, name, *structs.astuple(message)))

    def _result(self, job: str, message: Installed | InstallFailed, _payload: bytes) -> None:
        """Keep the result of a job until its process has ended, and let it exit."""
        task = self._by_job.get(job)
        if task is not None and isinstance(message, Installed):
            task.result = message
        elif task is not None and isinstance(message, InstallFailed) and task.result is None:
            task.result = message.failure
        self._jobs.dismiss(job)

    def _ended(self, job: str, why: str) -> None:
        task = self._by_job.pop(job)
        del self._tasks[task.key]
        doing = "installation" if isinstance(task.order, StartInstall) else "removal"
        result = task.result or Failure(
            Code.DOWNLOAD_FAILED, f"the {doing} of backend {task.name} was interrupted ({why}); nothing was changed"
        )
        version = task.order.version if isinstance(task.order, StartInstall) else ""
        self._downloads.end(job, result if isinstance(result, Failure) else None)
        if isinstance(result, Failure) and task.then:
            log.info("backend job stopped", backend=task.name, reason=result.message)
        elif isinstance(result, Failure):
            log.error("backend job failed", backend=task.name, reason=result.message, detail=result.detail)
        else:
            log.info("backend job complete", backend=task.name, order=type(task.order).__name__, version=version)
        for peer, call in task.waiters:
            if isinstance(result, Installed):
                self.done(peer, call, version, result.files)
            else:
                self._calls.reply(peer, call.number, result)
        for follows in task.then:
            follows()
        self._changed()
        self._decisions.reconcile()

    def done(self, peer: str, call: Call, version: str, files: int = 1) -> None:
        """Answer a call that has succeeded."""
        self._calls.reply(peer, call.number, BackendDone(call.recipe, call.backend, version, files))
