"""What a worker needs to load a model (its options in order of precedence, its files), and what prevents the load."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from protocol.config.settings import Settings
from protocol.failures import Code, Failure, LemonbusError
from protocol.models.recipes import ModelSpec, OptionValue
from supervisor.backends.inventory import BackendInventory
from supervisor.backends.missing_backend import explain_missing_backend
from supervisor.models import files
from supervisor.models.catalogues.catalogue import CatalogueEntry
from supervisor.models.compatibility import MachineCapacity
from supervisor.models.files import ModelFiles
from supervisor.models.options import load_options
from supervisor.models.options.load_options import ModelOptions, Options
from supervisor.models.options.model_configuration import ModelConfiguration
from supervisor.models.options.model_specs import OptionLayer, descriptor_of, merged_options, model_spec, option_layers
from workers.backends.registry import DESCRIPTORS, backend_class


class SpecBuilder:
    """Makes specs of entries. It does not look up names."""

    def __init__(
        self,
        settings: Settings,
        configuration: ModelConfiguration,
        saved: ModelOptions,
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
        return model_spec(entry, descriptor_of(entry), chosen, found, devices, configured, dict(asked))

    def _options_of(
        self, entry: CatalogueEntry, asked: Mapping[str, OptionValue], *, ignore_saved: bool = False
    ) -> Options:
        descriptor = descriptor_of(entry)
        saved = {} if ignore_saved else self._saved.of(entry.name)
        wanted = {name: value for name, value in asked.items() if name != load_options.MERGED_ARGS}
        checked = load_options.check(descriptor, wanted, self._file_directories)
        layers = option_layers(entry, descriptor, self._settings, self._configuration.options(entry), saved)
        return merged_options(layers, checked, merge_args=len(wanted) < len(asked))

    def option_layers(self, entry: CatalogueEntry) -> list[OptionLayer]:
        """Return the options of a load that asks for none, by their origins; raises as :meth:`build`."""
        configured, saved = self._configuration.options(entry), self._saved.of(entry.name)
        return option_layers(entry, descriptor_of(entry), self._settings, configured, saved)

    def context_size(self, entry: CatalogueEntry) -> int:
        """Return the context tokens of a request when the model is loaded next; 0 if its engine or its files decide."""
        descriptor = DESCRIPTORS.get(entry.recipe)
        if descriptor is None or descriptor.option("ctx_size") is None:
            return 0
        return int(self._options_of(entry, {}).get("ctx_size", 0))

    def precheck(self, spec: ModelSpec) -> None:
        """Raise what is wrong with the options or the backend, before a running model is stopped or files are fetched."""
        try:
            backend_class(spec.recipe)(spec, self._settings).check()
        except LemonbusError as problem:
            raise self.explained(spec, problem.failure).raised() from None

    def explained(self, spec: ModelSpec, failure: Failure) -> Failure:
        """Return the failure of a load. If its backend is not installed, it says what helps on this machine."""
        return explain_missing_backend(failure, spec, self._backends, self._machine().devices)
