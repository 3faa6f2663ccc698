"""What a worker needs to load a model: its recipe, the backend that runs it, and its options in order of precedence.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from protocol.config.model_sections import dotted_name
from protocol.config.model_settings import ModelSettings
from protocol.config.settings import Settings
from protocol.failures import Code, Failure, invalid
from protocol.models import checkpoints
from protocol.models.recipes import BackendDescriptor, ModelSpec, OptionValue, RecipeDescriptor
from supervisor.backends.inventory import DEFAULT_BACKEND, missing_requirement
from supervisor.models.catalogues.catalogue import CatalogueEntry
from supervisor.models.files import ModelFiles
from supervisor.models.options import load_options
from supervisor.models.options.engine_fingerprint import engine_fingerprint
from supervisor.models.options.load_options import Options
from supervisor.models.options.model_configuration import ConfiguredOptions
from workers.backends.registry import DESCRIPTORS


def descriptor_of(entry: CatalogueEntry) -> RecipeDescriptor:
    """Return the recipe of a model; raises ``unsupported_operation`` if it cannot run here."""
    descriptor = DESCRIPTORS.get(entry.recipe)
    if descriptor is None:
        raise Failure(
            Code.UNSUPPORTED,
            f"model {entry.name} needs recipe {checkpoints.printable(entry.recipe)}, which cannot be run here",
            model=entry.name,
        ).raised()
    return descriptor


class OptionLayer(NamedTuple):
    """Options of one origin."""

    origin: str
    options: Mapping[str, OptionValue]
    for_all_models: bool = False
    """Whether all models of the recipe have them."""


def option_layers(
    entry: CatalogueEntry,
    descriptor: RecipeDescriptor,
    settings: Settings,
    configured: ConfiguredOptions,
    saved: Mapping[str, OptionValue],
) -> list[OptionLayer]:
    """Return the options of a model before a load asks for others, by their origins.

    Later layers override earlier ones.

    All except the catalogue's were checked. Of the catalogue's, those that the recipe does not have are left out.
    """
    known = load_options.defaults(descriptor, settings)
    of_settings = {option.name for option in descriptor.options if load_options.setting_of(option.name)}
    return [
        OptionLayer("recipe", {name: value for name, value in known.items() if name not in of_settings}, True),
        OptionLayer("settings", {name: value for name, value in known.items() if name in of_settings}, True),
        OptionLayer(dotted_name(("defaults", descriptor.recipe)), configured.recipe, True),
        OptionLayer("catalogue", {name: value for name, value in entry.options.items() if descriptor.option(name)}),
        OptionLayer(configured.section, configured.model),
        OptionLayer(load_options.FILE, saved),
    ]


def merged_options(
    layers: Iterable[OptionLayer], asked: Mapping[str, OptionValue], *, merge_args: bool = False
) -> Options:
    """Return the options of a load: those that it asks for, which were checked, override all layers.

    ``merge_args``: its engine arguments come after those for all models of the recipe, instead of replacing them.
    """
    merged: Options = {}
    shared: Options = {}
    for layer in layers:
        merged.update(layer.options)
        if layer.for_all_models:
            shared.update(layer.options)
    words = [name for name in asked if merge_args and name.endswith("_args") and shared.get(name)]
    return {**merged, **asked, **{name: f"{shared[name]} {asked[name]}" for name in words}}


def choose_backend(descriptor: RecipeDescriptor, chosen: Options, devices: Collection[str] = ()) -> BackendDescriptor:
    """Return the backend in the options, else the first that a machine with these devices can run, else the first.

    Raises ``invalid_request`` if the recipe has no backend with that name.
    """
    wanted = str(chosen.get(f"{descriptor.recipe}_backend", ""))
    if wanted in ("", DEFAULT_BACKEND):
        return next(
            (each for each in descriptor.backends if not missing_requirement(each, devices)), descriptor.backends[0]
        )
    found = descriptor.backend(wanted)
    if found is None:
        known = ", ".join(backend.name for backend in descriptor.backends)
        raise invalid(
            f"{descriptor.recipe}_backend must be one of {known}, not {wanted!r}", f"{descriptor.recipe}_backend"
        )
    return found


def model_spec(
    entry: CatalogueEntry,
    descriptor: RecipeDescriptor,
    chosen: Options,
    found: ModelFiles,
    devices: Collection[str],
    configured: ModelSettings,
    asked: Options,
) -> ModelSpec:
    """Return the spec of a model with these options and files; raises like :func:`choose_backend`.

    ``devices``: those of this machine. ``configured``: what the configuration says about the model. ``asked``: the
    options that a call asked for.
    """
    backend = choose_backend(descriptor, chosen, devices)
    return ModelSpec(
        name=entry.name,
        checkpoint=entry.checkpoint,
        recipe=entry.recipe,
        backend=backend.name,
        type=entry.type.value,
        path=found.path,
        mmproj=found.mmproj,
        options=chosen,
        labels=entry.labels,
        size=found.size,
        device=backend.device,
        npu=backend.npu,
        restartable=descriptor.restartable,
        env=configured.env,
        devices=configured.devices or [],
        asked=asked,
        configured=engine_fingerprint(configured),
    )
