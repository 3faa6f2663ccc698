"""Models as the APIs list them: a catalogue entry with what the disk and this machine add to it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from msgspec import structs

from protocol.config.settings import Settings
from protocol.messages.models import ModelEntry
from protocol.models import repository_files
from protocol.models.recipes import ModelOrigin
from supervisor.models import compatibility, files
from supervisor.models.catalogues import catalogue
from supervisor.models.catalogues.catalogue import CatalogueEntry
from supervisor.models.compatibility import MachineCapacity
from supervisor.models.files import ModelFiles
from supervisor.models.names import NameIndex
from supervisor.models.options import load_options
from supervisor.models.options.model_specs import choose_backend
from workers.backends.registry import DESCRIPTORS


class _Absent(NamedTuple):
    """The listed form of a model that is not downloaded, and the condition under which it is still true."""

    entry: CatalogueEntry
    machine: MachineCapacity
    folders: frozenset[str]
    """Folders of the hub's cache: once one of them exists, the model may be there."""
    listed: ModelEntry


class ModelEntries:
    """Makes the listed form of models, and remembers that of models that are not downloaded."""

    def __init__(self, settings: Settings) -> None:
        """Know the settings. Files are looked for at each call."""
        self._settings = settings
        self._devices: dict[tuple[str, frozenset[str]], str] = {}
        self._absent: dict[str, _Absent] = {}
        self.found: dict[str, ModelFiles] = {}
        """The files of downloaded models when they were listed last."""

    def all_listed(self, names: NameIndex, machine: MachineCapacity) -> list[ModelEntry]:
        """Return the models as the APIs show them.

        For tens of thousands, this takes milliseconds, except the first time.
        """
        entries, given, cached = names.entries(), names.given(), files.cached_repositories()
        if len(self._absent) > 2 * len(entries):
            self._absent.clear()  # most of them were deleted
        if len(self.found) > 2 * len(entries):
            self.found.clear()
        return [_named(self._remembered(entry, machine, cached), given) for entry in entries]

    def _remembered(self, entry: CatalogueEntry, machine: MachineCapacity, cached: Collection[str]) -> ModelEntry:
        known = self._absent.get(entry.name)
        if known and known.entry is entry and known.machine is machine and known.folders.isdisjoint(cached):
            return known.listed
        listed = self._listed(entry, machine)
        folders = files.hub_folders(entry)
        if not listed.downloaded and folders:
            self._absent[entry.name] = _Absent(entry, machine, folders, listed)
        return listed

    def listed(self, entry: CatalogueEntry, names: NameIndex, machine: MachineCapacity) -> ModelEntry:
        """Return a model as the APIs show it."""
        return _named(self._listed(entry, machine), names.given())

    def _listed(self, entry: CatalogueEntry, machine: MachineCapacity) -> ModelEntry:
        found = files.locate(entry, self._settings.cache_dir)
        if found is not None:
            self.found[entry.name] = found
        else:
            self.found.pop(entry.name, None)
        return ModelEntry(
            id=entry.name,
            created=(found.modified if found else entry.registered) or catalogue.released(),
            checkpoint=entry.checkpoint,
            checkpoints=entry.checkpoints,
            recipe=entry.recipe,
            type=entry.type.value,
            downloaded=found is not None,
            origin=_origin(entry),
            device=self._device(entry.recipe, machine),
            dtype=_dtype(entry, found),
            labels=entry.labels,
            size=round(found.size / 1e9, 4) if found and found.size else entry.size,
            suggested=entry.suggested,
            aliases=entry.aliases,
            unsupported_reason=compatibility.incompatibility(entry, machine),
        )

    def _device(self, recipe: str, machine: MachineCapacity) -> str:
        """Return the device on which models of a recipe run here, unless a load names another one."""
        key = recipe, machine.devices
        if key not in self._devices:
            descriptor = DESCRIPTORS.get(recipe)
            chosen = load_options.defaults(descriptor, self._settings) if descriptor else {}
            backend = choose_backend(descriptor, chosen, machine.devices) if descriptor else None
            self._devices[key] = backend.device if backend else "cpu"
        return self._devices[key]


def _origin(entry: CatalogueEntry) -> ModelOrigin:
    if entry.path or not entry.configured:
        return ModelOrigin.FILES
    return ModelOrigin.SERVER if DESCRIPTORS[entry.recipe].elsewhere else ModelOrigin.PROGRAM


def _named(listed: ModelEntry, given: Mapping[str, list[str]]) -> ModelEntry:
    """Return a listed model with the names that users have given it."""
    return structs.replace(listed, given_names=given[listed.id]) if listed.id in given else listed


def _dtype(entry: CatalogueEntry, found: ModelFiles | None) -> str:
    """Return the type of a model's weights, from its file's name or else its checkpoint."""
    return (repository_files.dtype(found.path.rpartition("/")[2]) if found else "") or repository_files.dtype(
        entry.checkpoint
    )
