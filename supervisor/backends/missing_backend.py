"""The refusal of a load whose backend is not installed, with what helps on this machine."""

from __future__ import annotations

from collections.abc import Collection

from protocol.failures import Code, Failure
from protocol.models.recipes import BackendDescriptor, ModelSpec, RecipeDescriptor
from supervisor.backends.inventory import INSTALLED, UNSUPPORTED, BackendInventory
from workers.backends.registry import DESCRIPTORS


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
