"""The recipes: each has its descriptor, which is right in itself, and those that can be run their backend."""

from __future__ import annotations

import pytest

from protocol.failures import LemonbusError
from protocol.models.recipes import Provision
from workers.backends.registry import ARGUMENT_CHECKS, BACKEND_CLASSES, DESCRIPTORS, backend_class


def test_the_registry() -> None:
    for recipe, descriptor in DESCRIPTORS.items():
        assert descriptor.recipe == recipe
        for endpoints in descriptor.serves.values():
            assert all(endpoint in descriptor.idle_check for endpoint in endpoints)
        if recipe in BACKEND_CLASSES:
            assert backend_class(recipe).descriptor is descriptor
        else:
            with pytest.raises(LemonbusError) as raised:
                backend_class(recipe)
            assert raised.value.failure.http_status == 501
            assert recipe in str(raised.value)
    with pytest.raises(LemonbusError):
        backend_class("nope")


def test_every_descriptor_is_in_itself_right() -> None:
    for descriptor in DESCRIPTORS.values():
        names = [backend.name for backend in descriptor.backends]
        assert len(set(names)) == len(names)
        for backend in descriptor.backends:
            assert backend.device
            ours = backend.executable.startswith("module:")
            assert ours == (backend.provision is Provision.WHEEL)
            # An archive may have a package beside it that runs in its stead.
            assert bool(backend.requires) == ours or backend.provision is Provision.ARCHIVE
            assert bool(backend.home) == (backend.provision is Provision.USER)
        chosen = descriptor.option(f"{descriptor.recipe}_backend")
        assert (chosen is not None) == (len(names) > 1)
        assert chosen is None or chosen.choices == names
        for option in descriptor.options:
            assert (option.name in ARGUMENT_CHECKS) == (option.kind == "args")
