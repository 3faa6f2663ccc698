"""Installs and removes backends: one job process each, the calls that wait for it, and the models to unload first."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from msgspec import structs

from protocol.config.settings import Settings
from protocol.failures import Code, Failure, invalid, printable
from protocol.messages.backend_installs import (
    BackendDone,
    InstallBackend,
    Installed,
    InstallFailed,
    InstallProgress,
    ListInstalls,
    StartInstall,
    StartUninstall,
    StopInstall,
    UninstallBackend,
)
from protocol.messages.calls import Progress
from protocol.models.recipes import BackendDescriptor, Provision
from protocol.runtime import logs
from supervisor.backends.inventory import (
    BackendInventory,
    installation_key,
    is_up_to_date,
    missing_requirement,
    not_installable_reason,
)
from supervisor.backends.releases import PinnedRelease
from supervisor.handlers.backend_downloads import BackendDownloads
from supervisor.runtime.decisions import Decisions
from supervisor.runtime.gateway_calls import GatewayCalls
from supervisor.runtime.handler_table import Handler
from supervisor.runtime.internal_calls import InternalCalls
from supervisor.runtime.jobs import Jobs, OnEnded
from supervisor.scheduler.view import SchedulerView
from workers.backends.package_version import package_version
from workers.backends.registry import DESCRIPTORS

MODULE: Final = "workers.jobs.install"

log = logs.get_logger()
Key = tuple[str, str]
"""Recipe and backend in the path of an installation."""
Call = InstallBackend | UninstallBackend


class BackendJob:
    """One installation or removal in progress."""

    def __init__(self, key: Key, order: StartInstall | StartUninstall) -> None:
        """Not started yet."""
        self.key = key
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
    """The installations and removals in progress, and the messages about them."""

    def __init__(
        self,
        settings: Settings,
        backends: BackendInventory,
        devices: Callable[[], Collection[str]],
        view: SchedulerView,
        decisions: Decisions,
        internal_calls: InternalCalls,
        jobs: Jobs,
        calls: GatewayCalls,
        changed: Callable[[], None],
        now: Callable[[], float],
    ) -> None:
        """``devices``: returns the kinds of devices of this machine that are known so far. ``changed``: called when others are installed.

        ``now``: returns the time of the loop.
        """
        self._settings, self._backends, self._devices = settings, backends, devices
        self._view, self._decisions, self._internal_calls = view, decisions, internal_calls
        self._jobs, self._calls, self._changed = jobs, calls, changed
        self._tasks: dict[Key, BackendJob] = {}
        self._by_job: dict[str, BackendJob] = {}
        self._downloads = BackendDownloads(now)

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {
            InstallBackend: self._install,
            UninstallBackend: self._uninstall,
            ListInstalls: self._list,
            StopInstall: self._stop,
            InstallProgress: self._progress,
            Installed: self._result,
            InstallFailed: self._result,
        }

    # Calls

    def _install(self, peer: str, call: InstallBackend, _payload: bytes) -> None:
        descriptor, backend = self._backends.find(call.recipe, call.backend, self._devices())
        key = installation_key(call.recipe, backend)
        if self._joined(key, peer, call, StartInstall):
            return
        lacking = missing_requirement(backend, self._devices())
        if lacking and not call.force:
            reason = f"backend {call.recipe}:{backend.name} cannot be used on this machine: {lacking}"
            raise invalid(f"{reason}; `force` installs it anyway", "backend")
        if backend.provision is Provision.USER:
            self._check_program(call.recipe, backend)
            self._is_installed(peer, call, key, "")
            return
        pin = self._backends.releases.of(*key)
        installed = self._backends.installation(call.recipe, backend)
        version = package_version(backend.requires)
        if installed is not None and (pin is None or not pin.complete or is_up_to_date(installed, pin)):
            self._is_installed(peer, call, key, installed.record.version)
        elif installed is None and version:
            self._is_installed(peer, call, key, version)
        elif pin is None or not pin.complete:
            raise invalid(not_installable_reason(call.recipe, backend, pin), "backend")
        elif self._settings.offline:
            reason = f"backend {descriptor.recipe}:{backend.name} is not on this machine, and the setting `offline` forbids downloads"
            raise Failure(Code.OFFLINE, reason).raised()
        else:
            self._begin(peer, call, BackendJob(key, self._install_order(key, backend, pin)))

    def _is_installed(self, peer: str, call: InstallBackend, key: Key, version: str) -> None:
        """Answer a call for which there is nothing to do."""
        if not call.detached:
            self._done(peer, call, version)
            return
        name = ":".join(key)
        self._downloads.installed(name)
        self._calls.answer(peer, call.number, self._downloads.report(name))

    def _list(self, peer: str, call: ListInstalls, _payload: bytes) -> None:
        """Answer with the installations, as downloads."""
        self._calls.answer(peer, call.number, self._downloads.listed())

    def _stop(self, peer: str, call: StopInstall, _payload: bytes) -> None:
        """Stop an installation, and answer when its job has ended."""
        code, what = (Code.DOWNLOAD_PAUSED, "paused") if call.pause else (Code.OPERATOR_CANCELLED, "cancelled")
        why = Failure(code, f"the installation of backend {printable(call.name)} was {what}: `install` goes on with it")
        job = self._downloads.job_of(call.name)

        def answer() -> None:
            report = self._downloads.report(call.name)
            if call.remove:
                self._downloads.dismiss(call.name)
            self._calls.answer(peer, call.number, report)

        task = self._by_job.get(job)
        if task is None:
            self._downloads.stop(call.name, why)
            answer()
            return
        task.then.append(answer)
        if not isinstance(task.result, Installed):
            task.result = why
            self._jobs.kill(job)

    def _check_program(self, recipe: str, backend: BackendDescriptor) -> None:
        program = self._backends.program(backend)
        if not shutil.which(program):
            raise Failure(
                Code.UNSUPPORTED,
                f"backend {recipe}:{backend.name} cannot be installed by this server: get {backend.executable} from"
                f" {backend.home} and put it on PATH",
                param="backend",
            ).raised()

    def _uninstall(self, peer: str, call: UninstallBackend, _payload: bytes) -> None:
        _, backend = self._backends.find(call.recipe, call.backend, self._devices())
        key = installation_key(call.recipe, backend)
        if self._joined(key, peer, call, StartUninstall):
            return
        installed = self._backends.installation(call.recipe, backend)
        if installed is None:
            if backend.provision is Provision.USER or package_version(backend.requires):
                reason = (
                    f"backend {call.recipe}:{backend.name} was not installed by this server, which does not remove it"
                )
                raise Failure(Code.CONFLICT, reason, param="backend").raised()
            self._done(peer, call, "")
            return
        task = BackendJob(key, StartUninstall(*key, self._settings.cache_dir))
        task.waiters.append((peer, call))
        self._tasks[key] = task
        models = self._models_using(key)
        for name in models:
            log.info("unloading for the removal of its backend", model=name, backend=task.name)
        self._internal_calls.unload(models, partial(self._start, task))

    def _joined(self, key: Key, peer: str, call: Call, kind: type) -> bool:
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

    # Jobs

    def _begin(self, peer: str, call: Call, task: BackendJob) -> None:
        self._tasks[task.key] = task
        self._start(task)
        self._wait(peer, call, task)

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
        self._tasks[key] = self._by_job[job] = task = BackendJob(key, order)
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
                self._done(peer, call, version, result.files)
            else:
                self._calls.reply(peer, call.number, result)
        for follows in task.then:
            follows()
        self._changed()
        self._decisions.reconcile()

    def _done(self, peer: str, call: Call, version: str, files: int = 1) -> None:
        self._calls.reply(peer, call.number, BackendDone(call.recipe, call.backend, version, files))

    def _install_order(self, key: Key, backend: BackendDescriptor, pin: PinnedRelease) -> StartInstall:
        return StartInstall(
            *key,
            version=pin.version,
            digest=pin.digest,
            cache_dir=self._settings.cache_dir,
            executable=backend.executable,
            wheels=pin.wheels,
            archive=pin.archive,
            retire=not self._models_using(key),
        )

    def _models_using(self, key: Key) -> list[str]:
        """Return the models that run on an installation."""
        found: list[str] = []
        for each in self._view.models():
            if not each.counts_as_loaded or each.spec is None:
                continue
            descriptor = DESCRIPTORS.get(each.spec.recipe)
            backend = descriptor.backend(each.spec.backend) if descriptor else None
            if backend is not None and installation_key(each.spec.recipe, backend) == key:
                found.append(each.name)
        return found
