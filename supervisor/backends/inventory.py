"""The state of each backend on this machine: unsupported, installable, in need of an update, or installed.

It is the part ``recipes`` of system info. ``devices`` are the machine's kinds of devices, as
:class:`~protocol.models.devices.Device` (``cpu``, ``amd_gpu``, …).
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Final

from msgspec import UNSET

from protocol.config.settings import Settings
from protocol.failures import Code, Failure, invalid, printable
from protocol.messages.system_info import BackendStatus, RecipeStatus
from protocol.models import installations
from protocol.models.devices import DEVICE_NAMES
from protocol.models.installations import Installation
from protocol.models.recipes import BackendDescriptor, ModelSpec, Provision, RecipeDescriptor
from supervisor.backends.releases import BackendReleases, PinnedRelease
from workers.backends.package_version import package_version
from workers.backends.registry import DESCRIPTORS

DEFAULT_BACKEND: Final = "default"
"""The name under which the preferred backend of every recipe is also listed."""

UNSUPPORTED: Final = "unsupported"
INSTALLABLE: Final = "installable"
UPDATE_REQUIRED: Final = "update_required"
INSTALLED: Final = "installed"

_SYSTEM_NAMES: Final = {"linux": "Linux", "win32": "Windows", "darwin": "macOS"}


class BackendInventory:
    """Combines the descriptors, the pins and the disk. It only remembers the pins."""

    def __init__(self, settings: Settings) -> None:
        """Read the pins."""
        self._settings = settings
        self.releases = BackendReleases(settings)

    def recipes(self, devices: Collection[str]) -> dict[str, RecipeStatus]:
        """Return the ``recipes`` of system info for a machine that has these kinds of devices."""
        return {recipe: self._recipe(descriptor, devices) for recipe, descriptor in DESCRIPTORS.items()}

    def _recipe(self, descriptor: RecipeDescriptor, devices: Collection[str]) -> RecipeStatus:
        found = {
            backend.name: self.status(descriptor.recipe, backend, devices, backend.name)
            for backend in descriptor.backends
        }
        preferred = self._preferred(descriptor, found)
        first = descriptor.backend(preferred) or descriptor.backends[0]
        found[DEFAULT_BACKEND] = self.status(descriptor.recipe, first, devices, DEFAULT_BACKEND)
        return RecipeStatus(default_backend=preferred or UNSET, backends=found)

    def _preferred(self, descriptor: RecipeDescriptor, found: dict[str, BackendStatus]) -> str:
        """Return the backend in the settings, else an installed one, else the first installable one; empty if there is none."""
        asked = str(getattr(self._settings, f"{descriptor.recipe.replace('-', '')}_backend", ""))
        if asked in found and found[asked].state != UNSUPPORTED:
            return asked
        for states in ((INSTALLED,), (UPDATE_REQUIRED, INSTALLABLE)):
            for name, status in found.items():
                if status.state in states:
                    return name
        return ""

    def find(self, recipe: str, name: str, devices: Collection[str]) -> tuple[RecipeDescriptor, BackendDescriptor]:
        """Return the backend that a caller names; ``default`` means the preferred one. Raises ``invalid_request``."""
        descriptor = DESCRIPTORS.get(recipe)
        if descriptor is None:
            raise invalid(f"there is no recipe {printable(recipe)!r}; there are: {', '.join(DESCRIPTORS)}", "recipe")
        if name == DEFAULT_BACKEND:
            found = {each.name: self.status(recipe, each, devices, each.name) for each in descriptor.backends}
            return descriptor, descriptor.backend(self._preferred(descriptor, found)) or descriptor.backends[0]
        backend = descriptor.backend(name) if name else None
        if backend is None:
            known = ", ".join(each.name for each in descriptor.backends)
            raise invalid(f"recipe {recipe} has no backend {printable(name)!r}; there are: {known}, default", "backend")
        return descriptor, backend

    def status(self, recipe: str, backend: BackendDescriptor, devices: Collection[str], name: str) -> BackendStatus:
        """Return the state of a backend. ``name``: its name in ``action``."""
        usable = [str(device) for device in backend.devices if device in devices]
        lacking = missing_requirement(backend, devices)
        if lacking:
            return BackendStatus([], UNSUPPORTED, lacking)
        if backend.provision is Provision.SECTION:
            return BackendStatus(usable, INSTALLED)
        if backend.provision is Provision.USER:
            return self._of_user(backend, usable)
        pin = self.releases.of(*installation_key(recipe, backend))
        action = f"lemonbus backends install {recipe}:{name}"
        installed = self.installation(recipe, backend)
        if installed is not None:
            version = installed.record.version
            if pin is None or not pin.complete or is_up_to_date(installed, pin):
                return BackendStatus(usable, INSTALLED, version=version)
            return BackendStatus(usable, UPDATE_REQUIRED, "Backend update is required before use.", action, version)
        version = package_version(backend.requires)
        if version:
            return BackendStatus(usable, INSTALLED, version=version)
        if pin is None or not pin.complete:
            return BackendStatus([], UNSUPPORTED, not_installable_reason(recipe, backend, pin))
        return BackendStatus(usable, INSTALLABLE, "Backend is supported but not installed.", action, pin.version)

    def _of_user(self, backend: BackendDescriptor, usable: list[str]) -> BackendStatus:
        program = self.program(backend)
        if shutil.which(program):
            return BackendStatus(usable, INSTALLED)
        where = "where the settings say" if "/" in program else "on PATH"  # clients see no path of the machine
        return BackendStatus(usable, INSTALLABLE, f"{Path(program).name} was not found {where}.", backend.home)

    def program(self, backend: BackendDescriptor) -> str:
        """Return the program on PATH of a backend that users install themselves."""
        return str(getattr(self._settings, backend.executable.replace("-", "_"), backend.executable))

    def installation(self, recipe: str, backend: BackendDescriptor) -> Installation | None:
        """Return the installation of the pinned version, else the latest one; None if there is none."""
        key = installation_key(recipe, backend)
        found = installations.find_installations(self._settings.cache_dir, *key)
        pin = self.releases.of(*key)
        return next((each for each in found if pin and is_up_to_date(each, pin)), found[0] if found else None)


def installation_key(recipe: str, backend: BackendDescriptor) -> tuple[str, str]:
    """Return recipe and backend in the path of an installation."""
    shared, _, name = backend.shares.partition(":")
    return (shared, name) if name else (recipe, backend.name)


def is_up_to_date(installation: Installation, pin: PinnedRelease) -> bool:
    """Return whether an installation was made from these pins."""
    return (installation.record.version, installation.record.digest) == (pin.version, pin.digest)


def missing_requirement(backend: BackendDescriptor, devices: Collection[str]) -> str:
    """Return what the machine lacks for a backend, as a sentence; empty if nothing."""
    if backend.systems and sys.platform not in backend.systems:
        return "Requires " + _joined_with_or([_SYSTEM_NAMES.get(system, system) for system in backend.systems])
    if not any(device in devices for device in backend.devices):
        return "Requires " + _joined_with_or([DEVICE_NAMES[device].phrase for device in backend.devices])
    return ""


def not_installable_reason(recipe: str, backend: BackendDescriptor, pin: PinnedRelease | None) -> str:
    """Return why a backend cannot be installed here although the machine could run it, and what to do about it."""
    key = f"{recipe}:{backend.name}"
    if backend.provision is Provision.WHEEL:
        return f"No wheels are known for {key}."
    known = pin is not None and pin.archive.url
    what = f"The sha256 of {pin.archive.url} is not known" if pin and known else "No release is known for this machine"
    version, url = (pin.version, pin.archive.url) if pin and known else ("VERSION", "URL")
    by_hand = f"`pip install 'lemonbus[{backend.extra}]'`, or " if backend.extra else ""
    return f"{what}: {by_hand}pin one with the setting backend_releases, as {key}@{version}={url}#sha256=DIGEST."


def _joined_with_or(words: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def explain_missing_backend(
    failure: Failure, spec: ModelSpec, inventory: BackendInventory, devices: Collection[str]
) -> Failure:
    """Return the failure of a refused load; ``backend_not_installed`` gets advice that works on this machine.

    A backend that this machine can neither run nor install is ``unsupported_operation``. ``devices``: those of this
    machine.
    """
    descriptor = DESCRIPTORS.get(spec.recipe)
    backend = descriptor.backend(spec.backend) if descriptor else None
    if failure.code is not Code.BACKEND_NOT_INSTALLED or descriptor is None or backend is None:
        return failure
    status = inventory.status(spec.recipe, backend, devices, backend.name)
    if status.state == INSTALLED:
        return failure  # a part of it is missing, which the worker has named
    code = Code.BACKEND_NOT_INSTALLED
    verdict = "is not installed"
    if status.state == UNSUPPORTED:
        code, verdict = Code.UNSUPPORTED, "cannot be used on this machine"
    message = f"{spec.name} cannot be loaded: its backend {spec.recipe}:{backend.name} {verdict}"
    cures = [_action(status.action), _other_backends(descriptor, backend, inventory, devices)]
    sentences = ". ".join([f"{message}: {status.message.rstrip('.')}", *filter(None, cures)])
    return Failure(code, sentences, model=spec.name, param=_option(descriptor))


def _action(action: str) -> str:
    """Return the helpful part of system info, as a sentence."""
    if not action:
        return ""
    return f"See {action}" if action.startswith("http") else f"`{action}` installs it"


def _option(descriptor: RecipeDescriptor) -> str:
    """Return the option that chooses between the backends of a recipe, empty if it has none."""
    name = f"{descriptor.recipe}_backend"
    return name if descriptor.option(name) else ""


def _other_backends(
    descriptor: RecipeDescriptor, wanted: BackendDescriptor, inventory: BackendInventory, devices: Collection[str]
) -> str:
    """Return the installed backends of the same recipe, as a sentence; empty if a load cannot choose one."""
    others = [
        each.name
        for each in descriptor.backends
        if each is not wanted and inventory.status(descriptor.recipe, each, devices, each.name).state == INSTALLED
    ]
    option = _option(descriptor)
    return f"Installed: {' and '.join(others)}; load the model with `{option}`" if others and option else ""
