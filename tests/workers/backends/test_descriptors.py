"""The recipes: each has a consistent descriptor, and each that can run has a backend."""

from __future__ import annotations

import pytest

from protocol.config.settings import Settings
from protocol.failures import LemonbusError
from protocol.models.checkpoints import TagCheckpoint, parse
from protocol.models.devices import HYBRID
from protocol.models.recipes import DEFAULT_RECIPE, Provision
from supervisor.models.catalogues.catalogue import CatalogueEntry
from supervisor.models.options import load_options
from workers.backends.recipe import Recipe
from workers.backends.registry import ARGUMENT_CHECKS, BACKEND_CLASSES, DESCRIPTORS, RECIPES, backend_class
from workers.jobs.model_programs import PROGRAMS


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


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.descriptor.recipe)
def test_what_other_code_reads_off_a_recipe(recipe: Recipe) -> None:
    """The contract of a recipe with the supervisor, the worker and the jobs."""
    descriptor = recipe.descriptor
    assert descriptor.title
    assert recipe.backend_class.descriptor is descriptor
    assert descriptor.model_type in descriptor.serves
    labelled = CatalogueEntry("x", "y", descriptor.recipe, labels=[descriptor.label] if descriptor.label else [])
    assert labelled.type == descriptor.model_type
    assert bool(descriptor.model_files.what) == bool(
        descriptor.model_files.suffixes or descriptor.model_files.other_suffixes
    )
    assert descriptor.model_files.accepts("model" + (descriptor.model_files.suffixes or [""])[0].upper())
    assert bool(recipe.identify) == bool(recipe.identified_suffixes)
    assert bool(descriptor.name_hint) == bool(descriptor.hint_devices)
    arguments = [option.name for option in descriptor.options if option.kind == "args"]
    assert len(arguments) == (1 if recipe.flags.flags else 0)
    for option in descriptor.options:
        assert option.help
        assert option.kind in ("int", "number", "bool", "string", "args")
        assert option.default is None or load_options.check(descriptor, {option.name: option.default})
    if descriptor.checkpoint_scheme:
        assert descriptor.checkpoint_scheme in PROGRAMS
        assert parse(f"{descriptor.checkpoint_scheme}:some:tag") == TagCheckpoint(
            descriptor.checkpoint_scheme, "some:tag"
        )
    for name in (f"{descriptor.recipe.replace('-', '')}_backend", *arguments):
        default = getattr(Settings(), name, "")
        assert default in ("", *(backend.name for backend in descriptor.backends))


def test_hints_and_folders_of_recipes_are_unambiguous() -> None:
    hints = [(each.name_hint, word) for each in DESCRIPTORS.values() for word in each.hint_devices]
    assert len(set(hints)) == len(hints)
    for hint in {hint for hint, _ in hints}:
        assert (hint, HYBRID) in hints, "the recipe for a request that names no device"
    folders = [each.folder_file for each in DESCRIPTORS.values() if each.folder_file]
    assert len(set(folders)) == len(folders)
    schemes = [each.checkpoint_scheme for each in DESCRIPTORS.values() if each.checkpoint_scheme]
    assert sorted(schemes) == sorted(PROGRAMS)
    assert DEFAULT_RECIPE in DESCRIPTORS


def test_every_descriptor_is_in_itself_right() -> None:
    for descriptor in DESCRIPTORS.values():
        names = [backend.name for backend in descriptor.backends]
        assert len(set(names)) == len(names)
        for backend in descriptor.backends:
            assert backend.device
            ours = backend.executable.startswith("module:")
            assert ours == (backend.provision is Provision.WHEEL)
            # A backend may have a package that runs instead of its archive.
            assert bool(backend.requires) == ours or backend.provision is Provision.ARCHIVE
            assert bool(backend.home) == (backend.provision is Provision.USER)
        chosen = descriptor.option(f"{descriptor.recipe}_backend")
        assert (chosen is not None) == (len(names) > 1)
        assert chosen is None or chosen.choices == names
        for option in descriptor.options:
            assert (option.name in ARGUMENT_CHECKS) == (option.kind == "args")
