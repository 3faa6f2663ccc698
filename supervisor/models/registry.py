"""All models that can be named: built-in, registered by users, found in the extra models directory, or adopted.

A lookup runs in the supervisor's loop, where nothing may take long. It checks with a few ``stat`` calls whether the
files on the disk were changed, and reads only those that were. A handler resolves a name once and passes the entry on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from protocol.config.settings import Settings
from protocol.failures import Code, Failure, LemonbusError, printable
from protocol.messages.models import ModelEntry
from protocol.messages.remote_models import RemoteModel
from protocol.models.recipes import DEFAULT_RECIPE, ModelSpec, OptionValue, RecipeDescriptor
from supervisor.models import compatibility, files, measured_memory, user_aliases
from supervisor.models.catalogues import adopted_models, catalogue, remote_models, user_models
from supervisor.models.catalogues.adopted_models import AdoptedModels
from supervisor.models.catalogues.catalogue import CatalogueEntry
from supervisor.models.catalogues.configured_models import configured_entries
from supervisor.models.catalogues.extra_models import ExtraModels
from supervisor.models.catalogues.file_models import FileModels
from supervisor.models.catalogues.remote_models import RemoteModels
from supervisor.models.catalogues.user_models import UserModels
from supervisor.models.compatibility import MachineCapacity
from supervisor.models.files import ModelFiles
from supervisor.models.measured_memory import MeasuredMemory
from supervisor.models.model_entries import ModelEntries
from supervisor.models.names import NameIndex
from supervisor.models.options import load_options, saved_options
from supervisor.models.options.load_options import Options
from supervisor.models.options.model_configuration import ModelConfiguration
from supervisor.models.options.model_specs import SpecBuilder, descriptor_of
from supervisor.models.options.saved_options import SavedOptions
from supervisor.models.problem_reports import ProblemReports
from supervisor.models.user_aliases import UserAliases
from supervisor.persistence.state_files import FinishWrite, finish_write


class ModelRegistry:
    """Resolves names to entries."""

    def __init__(
        self, settings: Settings, finish: FinishWrite = finish_write, machine: MachineCapacity | None = None
    ) -> None:
        """Read all files once, so that what is wrong with them is known at the start (``problems``).

        ``finish``: see :class:`supervisor.persistence.state_files.StateFile`. ``machine``: unless given, one without a GPU.
        """
        self._settings = settings
        self._built_in = catalogue.built_in()
        self._user = UserModels(Path(settings.state_dir) / user_models.FILE, finish)
        self.machine = machine or compatibility.default_capacity()
        """The devices and memory that decide which models are listed as runnable."""
        self.deleting: set[str] = set()
        """Models that are being deleted; no request may use them."""
        self.user_aliases = UserAliases(Path(settings.state_dir) / user_aliases.FILE, finish)
        """Other names of models, and the default model. This class adds and removes names."""
        self.extra = ExtraModels(settings.extra_models_dir)
        self._files = FileModels(settings.models)
        self.remote = RemoteModels(Path(settings.state_dir) / remote_models.FILE, list(settings.remotes), finish)
        """The models of other servers, as they were listed last."""
        file_directories = load_options.file_directories(settings)
        self.options = SavedOptions(
            Path(settings.state_dir) / saved_options.FILE, self._descriptor_by_name, file_directories, finish
        )
        """The options saved for models, by registered name."""
        self.measured = MeasuredMemory(Path(settings.state_dir) / measured_memory.FILE, finish)
        """The memory that engines of models took."""
        self._names = NameIndex()
        self._unknown: list[str] | None = None
        """See :meth:`unknown_in_configuration`; None: must be found anew, which takes milliseconds."""
        self.configuration = ModelConfiguration(settings)
        """What the configuration says about single models."""
        self.specs = SpecBuilder(settings, self.configuration, self.options, lambda: self.machine)
        """What models would be loaded with."""
        adopted_file = Path(settings.state_dir) / adopted_models.FILE
        self.adopted = AdoptedModels(adopted_file, file_directories, self.find, lambda: self._names, finish)
        """Models that no catalogue has and that clients named."""
        self._entries = ModelEntries(settings)
        self._problems = ProblemReports()
        self.problems = self._problems.lines
        """Lines for the log: what is wrong in a file or directory, once each. The reader of this list empties it."""
        self._index()
        self._refresh(starting=True)

    # The disk

    def _refresh(self, found: CatalogueEntry | None = None, starting: bool = False) -> None:
        """Read the files that were changed on the disk. ``found``: the requested entry."""
        changed = self._user.refresh(starting)
        if self.extra.refresh_sometimes(found.path if found else ""):
            changed = True
            self._problems.add(self.extra.problems)
        changed = self._files.refresh(found.name if found else "") or changed
        if changed:
            self._index()
        self.options.refresh()
        self._collect()

    def _index(self) -> None:
        self._names = self._index_of(self.configuration)
        self._unknown = None
        self.configuration.index(self._names.find)

    def _index_of(self, configuration: ModelConfiguration) -> NameIndex:
        sections = configuration.settings.models
        files_of_sections = self._files if configuration is self.configuration else FileModels(sections)
        configured = {**configured_entries(sections), **files_of_sections.entries}
        elsewhere = self.remote.entries
        sources = (self._built_in, self._user.entries, self.adopted.entries, self.extra.entries, elsewhere, configured)
        return NameIndex(*sources, aliases=self.user_aliases.aliases, configured=configuration.aliases)

    def _collect(self) -> None:
        sources = (
            self.options,
            self._user,
            self.remote,
            self.user_aliases,
            self.adopted,
            self.configuration,
            self.measured,
        )
        self._problems.collect(*sources)

    # Names

    def find(self, name: str) -> CatalogueEntry | None:
        """Return the entry a name means, or None."""
        found = self._names.find(name)
        if found is None or found.name in self._user.entries or found.path:
            self._refresh(found)
            found = self._names.find(name)
        return found

    def unknown_in_configuration(self) -> list[str]:
        """Return the names in the configuration that mean no model, each with its setting and similar names, as sentences."""
        if self._unknown is None:
            unknown = self.configuration.unknown(self._names.find)
            self._unknown = [f"{each.setting}: {self._names.not_found(each.name).message}" for each in unknown]
        return self._unknown

    def known(self, name: str) -> CatalogueEntry | None:
        """Return the entry that a name of :meth:`entries` means, or None, as of the last look at the disk."""
        return self._names.find(name)

    def resolve(self, name: str, models: Sequence[str] = ()) -> CatalogueEntry:
        """Return the entry a name means; raises ``model_not_found`` with the most similar names.

        ``models``: patterns of the models that the caller's key may use, if not all. The failure reveals no others.
        """
        found = self.find(name) or self._names.resolve(name, models)
        self.check_not_deleting(found.name)
        return found

    def check_not_deleting(self, name: str) -> None:
        """Raise ``conflict`` if a model is being deleted."""
        if name in self.deleting:
            raise Failure(Code.CONFLICT, f"model {name} is being deleted", model=name).raised()

    def resolve_or_adopt(self, name: str, recipe: str = DEFAULT_RECIPE) -> CatalogueEntry:
        """Return the entry that a name means. A checkpoint that no entry has is adopted under its own name.

        The caller keeps it (:meth:`AdoptedModels.keep`) when its files are here, and forgets it if its first load fails.
        """
        known = self.find(name)
        if known or "/" not in name:
            return known or self.resolve(name)
        return self.adopted.adopt_checkpoint(name, recipe)

    # Registration

    def restore(self, specs: Iterable[ModelSpec]) -> None:
        """Restore what an earlier supervisor had loaded but no file records: files that a client has named."""
        for spec in specs:
            try:
                self.adopted.restore(spec)
            except LemonbusError as problem:
                self.problems.append(f"{printable(spec.name)} is loaded, and its name is not known: {problem}")

    def registered(self, name: str) -> CatalogueEntry | None:
        """Return the entry that a user registered under exactly this name, None if there is none.

        Raises ``conflict`` if ``user_models.json`` has an entry with this name that is not understood.
        """
        self._refresh()
        found = self._user.entries.get(name)
        if found is None and self._user.has(name):
            reason = f"{user_models.FILE} has an entry {name} that cannot be read: correct it, or remove it"
            raise Failure(Code.CONFLICT, reason, model=name).raised()
        return found

    def register(self, name: str, item: Mapping[str, Any]) -> None:
        """Write an entry into ``user_models.json``.

        If that is impossible, raises ``internal_error`` and changes nothing.
        """
        self._user.put(name, item)
        self._index()

    def forget(self, entry: CatalogueEntry) -> None:
        """Forget an entry that a user registered or that was adopted, with its saved options and other names.

        Raises ``internal_error`` if a file cannot be written.
        """
        if entry.name in self._user.entries or entry.name in self.adopted.entries:
            self.options.drop(entry.name)
        if entry.name in self._user.entries:
            self._user.drop(entry.name)
        default = self._names.find(self.user_aliases.default)
        self.user_aliases.forget(entry.name)
        if default is not None and default.name == entry.name:
            self.user_aliases.set_default("")
        self.adopted.forget(entry.name)
        self._index()

    def add_alias(self, alias: str, model: str) -> None:
        """Give a model another name; raises ``conflict`` if another model already has it, or ``internal_error``."""
        known = self.find(alias)
        if known is not None and alias not in self.user_aliases.aliases:
            reason = f"{printable(alias)} is a name of model {known.name} already"
            raise Failure(Code.CONFLICT, reason, model=known.name, param="destination").raised()
        self.user_aliases.add_alias(alias, model)
        self._index()

    def list_remote(self, remote: str, models: Sequence[RemoteModel]) -> None:
        """Take the models that another server lists now; raises ``internal_error`` if they cannot be written."""
        if self.remote.take(remote, models):
            self._index()

    def drop_alias(self, alias: str) -> None:
        """Remove a name that a user gave; raises ``internal_error``."""
        self.user_aliases.drop_alias(alias)
        self._index()

    def all_entries(self) -> list[CatalogueEntry]:
        """Return all entries, downloaded or not."""
        self._refresh()
        return list(self._names.entries())

    def others(self, entry: CatalogueEntry) -> list[CatalogueEntry]:
        """Return all other entries: files that they use are not deleted with this one."""
        return [other for other in self.all_entries() if other.name != entry.name]

    def configuration_of(self, settings: Settings) -> ModelConfiguration:
        """Return what the sections of other settings would say; nothing changes."""
        configuration = ModelConfiguration(settings)
        configuration.index(self._index_of(configuration).find)
        return configuration

    # Listing

    def entries(self, show_all: bool) -> list[ModelEntry]:
        """Return the downloaded models, or with ``show_all`` all models, in the order of the catalogues."""
        self._refresh()
        listed = self._entries.all_listed(self._names, self.machine)
        return listed if show_all else [entry for entry in listed if entry.downloaded]

    def entry(self, model: str | CatalogueEntry) -> ModelEntry:
        """Return one model as the APIs show it; raises ``model_not_found``."""
        return self._entries.listed(self._entry(model), self._names, self.machine)

    def listed_files(self, name: str) -> ModelFiles | None:
        """Return the files of a model when it was listed last, None if they were not there."""
        return self._entries.found.get(name)

    def context_size(self, name: str) -> int:
        """Return the context tokens of a request when the model is loaded next; 0 if its engine or its files decide."""
        entry = self.known(name)
        return self.specs.context_size(entry) if entry is not None else 0

    def next_options(self, entry: CatalogueEntry, saved: Mapping[str, Any]) -> Options:
        """Return the options of a load that asks for none, if these are saved for the model; raises as :meth:`spec`."""
        return self.specs.options(entry, self.options.usable(entry.name, saved))

    # Loading and downloading

    def _entry(self, model: str | CatalogueEntry) -> CatalogueEntry:
        """Return the entry itself, or the one that a name means. An entry is not looked up again."""
        return self.resolve(model) if isinstance(model, str) else model

    def located(self, model: str | CatalogueEntry) -> ModelFiles | None:
        """Return the files of a model, None if not all of them are there; raises as :meth:`resolve` and ``model_unusable``."""
        return files.locate_for_use(self._entry(model), self._settings.cache_dir)

    def downloaded(self, model: str | CatalogueEntry) -> bool:
        """Return whether all files of a model are there; raises like :meth:`located`."""
        return self.located(model) is not None

    def spec(
        self,
        model: str | CatalogueEntry,
        asked: Mapping[str, OptionValue],
        *,
        ignore_saved: bool = False,
        found: ModelFiles | None = None,
    ) -> ModelSpec:
        """Return what a worker needs to load a model: see :meth:`SpecBuilder.build`; also raises ``model_not_found``."""
        try:
            return self.specs.build(self._entry(model), asked, ignore_saved=ignore_saved, found=found)
        finally:
            self._collect()

    def _descriptor_by_name(self, name: str) -> RecipeDescriptor:
        """Return the recipe of a model by its registered name. Only looks at the disk if the name is unknown."""
        return self.descriptor(self._names.get(name) or name)

    def descriptor(self, model: str | CatalogueEntry) -> RecipeDescriptor:
        """Return the recipe of a model; raises ``unsupported_operation`` if it cannot run here."""
        return descriptor_of(self._entry(model))
