"""The calls that install and remove backends: whether they may, with what order, and which models are unloaded first."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection

from protocol.config.settings import Settings
from protocol.failures import Code, Failure, invalid, printable
from protocol.messages.backend_installs import (
    InstallBackend,
    ListInstalls,
    StartInstall,
    StartUninstall,
    StopInstall,
    UninstallBackend,
)
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
from supervisor.handlers.backend_jobs import BackendJobs, Key
from supervisor.runtime.gateway_calls import GatewayCalls
from supervisor.runtime.handler_table import Handler
from supervisor.runtime.internal_calls import InternalCalls
from supervisor.scheduler.view import SchedulerView
from workers.backends.package_version import package_version
from workers.backends.registry import DESCRIPTORS

log = logs.get_logger()


class BackendCalls:
    """The calls that install and remove backends, and those that list and stop installations."""

    def __init__(
        self,
        settings: Settings,
        backends: BackendInventory,
        devices: Callable[[], Collection[str]],
        view: SchedulerView,
        internal_calls: InternalCalls,
        calls: GatewayCalls,
        jobs: BackendJobs,
        downloads: BackendDownloads,
    ) -> None:
        """``devices``: returns the kinds of devices of this machine that are known so far. ``jobs``, ``downloads``: those of all calls."""
        self._settings, self._backends, self._devices = settings, backends, devices
        self._view, self._internal_calls, self._calls = view, internal_calls, calls
        self._jobs, self._downloads = jobs, downloads

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {
            InstallBackend: self._install,
            UninstallBackend: self._uninstall,
            ListInstalls: self._list,
            StopInstall: self._stop,
        }

    def _install(self, peer: str, call: InstallBackend, _payload: bytes) -> None:
        descriptor, backend = self._backends.find(call.recipe, call.backend, self._devices())
        key = installation_key(call.recipe, backend)
        if self._jobs.join(key, peer, call, StartInstall):
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
            self._jobs.install(peer, call, self._install_order(key, backend, pin))

    def _is_installed(self, peer: str, call: InstallBackend, key: Key, version: str) -> None:
        """Answer a call for which there is nothing to do."""
        if not call.detached:
            self._jobs.done(peer, call, version)
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

        def answer() -> None:
            report = self._downloads.report(call.name)
            if call.remove:
                self._downloads.dismiss(call.name)
            self._calls.answer(peer, call.number, report)

        if not self._jobs.stop(self._downloads.job_of(call.name), why, answer):
            self._downloads.stop(call.name, why)
            answer()

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
        if self._jobs.join(key, peer, call, StartUninstall):
            return
        installed = self._backends.installation(call.recipe, backend)
        if installed is None:
            if backend.provision is Provision.USER or package_version(backend.requires):
                reason = (
                    f"backend {call.recipe}:{backend.name} was not installed by this server, which does not remove it"
                )
                raise Failure(Code.CONFLICT, reason, param="backend").raised()
            self._jobs.done(peer, call, "")
            return
        models = self._models_using(key)
        for name in models:
            log.info("unloading for the removal of its backend", model=name, backend=":".join(key))
        order = StartUninstall(*key, self._settings.cache_dir)
        self._internal_calls.unload(models, self._jobs.prepare(peer, call, order))

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
