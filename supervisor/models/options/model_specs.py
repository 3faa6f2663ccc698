"""What a worker needs to load a model: its recipe, its backend, its files, its options in order of precedence; and what prevents the load."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from protocol.config.model_settings import ModelSettings
from protocol.config.sections import dotted_name
from protocol.config.settings import Settings
from protocol.failures import Code, Failure, LemonbusError, invalid, printable
from protocol.models.engine_limits import EngineLimits
from protocol.models.recipes import BackendDescriptor, ModelSpec, OptionValue, RecipeDescriptor
from supervisor.backends.inventory import (
    DEFAULT_BACKEND,
    BackendInventory,
    explain_missing_backend,
    missing_requirement,
)
from supervisor.models import files
from supervisor.models.catalogues.catalogue import CatalogueEntry
from supervisor.models.compatibility import MachineCapacity
from supervisor.models.files import ModelFiles
from supervisor.models.options import load_options, saved_options
from supervisor.models.options.load_options import Options
from supervisor.models.options.model_configuration import (
    ConfiguredOptions,
    ModelConfiguration,
    engine_fingerprint,
    engine_keys,
)
from supervisor.models.options.node_needs import node_demands
from supervisor.models.options.saved_options import SavedOptions
from workers.backends.registry import DESCRIPTORS, backend_class


def descriptor_of(entry: CatalogueEntry) -> RecipeDescriptor:
    """Return the recipe of a model; raises ``unsupported_operation`` if it cannot run here."""
    descriptor = DESCRIPTORS.get(entry.recipe)
    if descriptor is None:
        raise Failure(
            Code.UNSUPPORTED,
            f"model {entry.name} needs recipe {printable(entry.recipe)}, which cannot be run here",
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
        OptionLayer(saved_options.FILE, saved),
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
    if not names_backend(descriptor, chosen):
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


def names_backend(descriptor: RecipeDescriptor, chosen: Options) -> bool:
    """Return whether the options name a backend, instead of leaving it open."""
    return str(chosen.get(f"{descriptor.recipe}_backend", "")) not in ("", DEFAULT_BACKEND)


def model_spec(
    entry: CatalogueEntry,
    descriptor: RecipeDescriptor,
    chosen: Options,
    found: ModelFiles,
    devices: Collection[str],
    configured: ModelSettings,
    asked: Options,
    several_nodes: bool = False,
) -> ModelSpec:
    """Return the spec of a model with these options and files; raises like :func:`choose_backend`.

    ``devices``: those of this machine. ``configured``: what the configuration says about the model. ``asked``: the
    options that a call asked for. ``several_nodes``: whether models may run on other machines as well.
    """
    backend = choose_backend(descriptor, chosen, devices)
    named = backend if names_backend(descriptor, chosen) else None
    demands = node_demands(descriptor, named, configured, several_nodes=several_nodes)
    limits = engine_limits(configured)
    return ModelSpec(
        name=entry.name,
        checkpoint=entry.checkpoint,
        recipe=entry.recipe,
        backend=backend.name,
        type=entry.type.value,
        path=found.path,
        mmproj=found.mmproj,
        parts=dict(found.parts),
        options=with_threads(chosen, descriptor, limits),
        labels=entry.labels,
        size=found.size,
        device=descriptor.shown_device or backend.device,
        npu=backend.npu,
        restartable=descriptor.restartable or configured.restart_on_hangup,
        env=configured.env,
        devices=configured.devices or [],
        elsewhere=descriptor.elsewhere,
        engine=engine_keys(configured),
        limits=limits,
        asked=asked,
        backends=list(demands.backends),
        needs=demands.needs,
        configured=engine_fingerprint(configured),
    )


def with_threads(chosen: Options, descriptor: RecipeDescriptor, limits: EngineLimits) -> Options:
    """Return options with as many threads as the engine may have processors, if they name no number of threads.

    An engine that waits for more threads than it has processors takes many times as long.
    """
    if limits.cpus and descriptor.option("threads") and not chosen.get("threads"):
        return {**chosen, "threads": limits.whole_cpus}
    return chosen


def engine_limits(configured: ModelSettings) -> EngineLimits:
    """Return what the configuration lets the engine of a model use."""
    return EngineLimits(
        configured.memory_limit, configured.cpus or 0.0, nice=configured.nice or 0, user=configured.user or ""
    )


class SpecBuilder:
    """Makes specs of entries. It does not look up names."""

    def __init__(
        self,
        settings: Settings,
        configuration: ModelConfiguration,
        saved: SavedOptions,
        machine: Callable[[], MachineCapacity],
    ) -> None:
        """``saved``: the options that clients had saved for models.

        ``machine``: returns the machine's present state.
        """
        self._settings, self._configuration, self._saved, self._machine = settings, configuration, saved, machine
        self._backends = BackendInventory(settings)
        self._file_directories = load_options.file_directories(settings)

    def build(
        self,
        entry: CatalogueEntry,
        asked: Mapping[str, OptionValue],
        *,
        ignore_saved: bool = False,
        found: ModelFiles | None = None,
    ) -> ModelSpec:
        """Return what a worker needs to load a model with the requested options.

        ``ignore_saved``: leave out its saved options, because they are about to be replaced. ``found``: its files as
        :func:`supervisor.models.files.locate_for_use` returns them, or what is expected of files that are still to be
        fetched. Without it, the files are looked for. Raises ``invalid_request`` for an option,
        ``unsupported_operation`` for the recipe, and ``not_loaded`` if the files are looked for but missing.
        """
        chosen = self._options_of(entry, asked, ignore_saved=ignore_saved)
        found = found or files.locate(entry, self._settings.cache_dir)
        if found is None:
            raise Failure(Code.NOT_LOADED, f"model {entry.name} is not downloaded", model=entry.name).raised()
        devices, configured = self._machine().devices, self._configuration.of(entry)
        return model_spec(
            entry,
            descriptor_of(entry),
            chosen,
            found,
            devices,
            configured=configured,
            asked=dict(asked),
            several_nodes=bool(self._settings.cluster_address),
        )

    def _options_of(
        self, entry: CatalogueEntry, asked: Mapping[str, OptionValue], *, ignore_saved: bool = False
    ) -> Options:
        descriptor = descriptor_of(entry)
        hidden = str(asked.get(load_options.WITHOUT_SAVED, "")).split()
        saved = {} if ignore_saved else self._saved.of(entry.name)
        saved = {name: value for name, value in saved.items() if name not in hidden}
        marks = (load_options.MERGED_ARGS, load_options.WITHOUT_SAVED)
        wanted = {name: value for name, value in asked.items() if name not in marks}
        checked = load_options.check(descriptor, wanted, self._file_directories)
        layers = option_layers(entry, descriptor, self._settings, self._configuration.options(entry), saved)
        return merged_options(layers, checked, merge_args=load_options.MERGED_ARGS in asked)

    def option_layers(self, entry: CatalogueEntry) -> list[OptionLayer]:
        """Return the options of a load that asks for none, by their origins; raises as :meth:`build`."""
        configured, saved = self._configuration.options(entry), self._saved.of(entry.name)
        return option_layers(entry, descriptor_of(entry), self._settings, configured, saved)

    def options(self, entry: CatalogueEntry, saved: Options) -> Options:
        """Return the options of a load that asks for none, if these were saved for the model; raises as :meth:`build`."""
        descriptor = descriptor_of(entry)
        layers = option_layers(entry, descriptor, self._settings, self._configuration.options(entry), saved)
        return with_threads(merged_options(layers, {}), descriptor, engine_limits(self._configuration.of(entry)))

    def context_size(self, entry: CatalogueEntry) -> int:
        """Return the context tokens of a request when the model is loaded next; 0 if its engine or its files decide."""
        descriptor = DESCRIPTORS.get(entry.recipe)
        if descriptor is None or descriptor.option("ctx_size") is None:
            return 0
        return max(0, int(self._options_of(entry, {}).get("ctx_size", 0)))

    def precheck(self, spec: ModelSpec) -> None:
        """Raise what is wrong with the options or the backend, before a running model is stopped or files are fetched."""
        try:
            backend_class(spec.recipe)(spec, self._settings).check()
        except LemonbusError as problem:
            raise self.explained(spec, problem.failure).raised() from None

    def explained(self, spec: ModelSpec, failure: Failure) -> Failure:
        """Return the failure of a load. If its backend is not installed, it says what helps on this machine."""
        return explain_missing_backend(failure, spec, self._backends, self._machine().devices)
