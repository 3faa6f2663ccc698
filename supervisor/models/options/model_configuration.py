"""The one owner of the configuration's sections: which model each of them means, and what they say about it.

All others ask it each time and keep nothing. Other settings come with another supervisor, which makes its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from protocol.config.model_settings import (
    FILE_KEYS,
    OWN_ENGINE_KEYS,
    ModelSettings,
    RecipeDefaults,
    merge_model_settings,
)
from protocol.config.sections import dotted_name
from protocol.config.settings import Settings
from protocol.requests.request_rules import RequestRules
from protocol.times import configured_idle_time
from supervisor.models.catalogues.catalogue import CatalogueEntry
from supervisor.models.options.load_options import Options, section_options, section_problems
from supervisor.scheduler.policy import GroupPolicy, ModelPolicy
from workers.backends.registry import DESCRIPTORS

_NO_SECTION = ModelSettings()
_NO_DEFAULTS = RecipeDefaults()
_LIMITS: Final = ("memory_limit", "cpus", "nice", "user")
ENGINE_KEYS: Final = frozenset({"options", "args", "env", "devices", *FILE_KEYS, *_LIMITS, *OWN_ENGINE_KEYS})
"""Keys of ``[models."NAME"]`` and ``[defaults.RECIPE]`` that an engine gets when it starts."""


class ModelIdentity(Protocol):
    """A model that is in a catalogue, or loaded."""

    @property
    def name(self) -> str:
        """Its registered name."""

    @property
    def recipe(self) -> str:
        """Its recipe."""


class ModelKey(NamedTuple):
    """The name and recipe of a model that has no entry."""

    name: str
    recipe: str


class UnknownModel(NamedTuple):
    """A name in the configuration that means no model (yet)."""

    setting: str
    """The dotted name of the setting that has it."""
    name: str


class ConfiguredOptions(NamedTuple):
    """The load options of both sections of a model."""

    recipe: Options
    model: Options
    section: str = "models"
    """The dotted name of the model's section."""


class ModelConfiguration:
    """What ``[models."NAME"]``, ``[defaults.RECIPE]`` and ``[groups.NAME]`` say, by the registered names of models."""

    def __init__(self, settings: Settings) -> None:
        """Know the sections. :meth:`index` then finds their models."""
        self.settings = settings
        """The whole settings."""
        self._sections: dict[str, str] = {}
        self._groups: dict[str, frozenset[str]] = {}
        self._pinned: frozenset[str] = frozenset()
        self._merged: dict[tuple[str, str], ModelSettings] = {}
        self.problems: list[str] = []
        """Sections that have no effect, or only a partial one. The reader of this list empties it."""

    @property
    def aliases(self) -> dict[str, str]:
        """Alias → the name of the section that gives it."""
        return {alias: name for name, section in self.settings.models.items() for alias in section.aliases}

    @property
    def preload(self) -> list[str]:
        """Models that are loaded at the start, under their names in the settings."""
        sections = [name for name, section in self.settings.models.items() if section.preload]
        return list(dict.fromkeys([*self.settings.load, *sections]))

    @property
    def named(self) -> list[str]:
        """Models that are to be loaded at the start, or have a section, under their names in the settings."""
        return list(dict.fromkeys([*self.settings.load, *self.settings.models]))

    def index(self, find: Callable[[str], CatalogueEntry | None]) -> None:
        """Find the model that each section, each group and the setting ``pin`` mean. ``find``: any name → its entry."""
        self._merged.clear()
        self.problems.clear()
        self._sections = {}
        for name, section in self.settings.models.items():
            entry = find(name)
            if entry is not None:
                self._index_section(name, entry)
                self._report_section(name, section, entry, find)
        self._groups = {}
        for group, section_of_group in self.settings.groups.items():
            for entry in filter(None, map(find, section_of_group.models)):
                self._groups[entry.name] = self._groups.get(entry.name, frozenset()) | {group}
        self._pinned = frozenset(entry.name for entry in map(find, self.settings.pin) if entry)

    def _index_section(self, name: str, entry: CatalogueEntry) -> None:
        """Note the section of a model. Of two, the one with the registered name, or else the first, has an effect."""
        known = self._sections.get(entry.name)
        if known is None or name == entry.name:
            self._sections[entry.name] = name
        if known is not None:
            other = known if name != entry.name else name
            self._report(("models", known if name == entry.name else name), f"has no effect beside the section {other}")

    def _report_section(
        self, name: str, section: ModelSettings, entry: CatalogueEntry, find: Callable[[str], CatalogueEntry | None]
    ) -> None:
        """Report which parts of a section have no effect, now that its model is known."""
        for alias in section.aliases:
            other = find(alias)
            if other is not None and other.name != entry.name:
                self._report(("models", name, "aliases"), f"has no effect for {alias}, the name of {other.name}")
        descriptor = DESCRIPTORS.get(entry.recipe)
        for wrong in section_problems(descriptor, section) if descriptor else ():
            self._report(("models", name, *wrong.path), f"is left out: {wrong.problem}")

    def _report(self, path: tuple[str, ...], problem: str) -> None:
        self.problems.append(f"{dotted_name(path)}: {problem}")

    def of(self, model: ModelIdentity) -> ModelSettings:
        """Return what the configuration says about a model: its own section over that of its recipe."""
        key = model.name, model.recipe
        if key not in self._merged:
            merged = merge_model_settings(self._defaults(model.recipe), self._section(model.name))
            self._merged[key] = merged
        return self._merged[key]

    def sources(self, model: ModelIdentity) -> dict[str, str]:
        """Return for each setting of a model the dotted name of the section that sets it; the last one wins."""
        found: dict[str, str] = {}
        recipe = ("defaults", model.recipe), self._defaults(model.recipe)
        name = self._sections.get(model.name, model.name)
        own = ("models", name), self.settings.models.get(name, _NO_SECTION)
        remote = ("remotes", model.name.partition("/")[0]), self._section(model.name)
        for path, section in (recipe, remote, own):
            found |= dict.fromkeys(msgspec.to_builtins(section), dotted_name(path))
        return found

    def options(self, model: ModelIdentity) -> ConfiguredOptions:
        """Return the load options of both sections of a model that its recipe accepts, including arguments."""
        descriptor = DESCRIPTORS.get(model.recipe)
        if descriptor is None:
            return ConfiguredOptions({}, {})
        return ConfiguredOptions(
            section_options(descriptor, self._defaults(model.recipe)),
            section_options(descriptor, self._section(model.name)),
            dotted_name(("models", self._sections.get(model.name, model.name))),
        )

    def pinned(self, model: ModelIdentity) -> bool:
        """Return whether a model is never evicted: according to its sections, or else to the setting ``pin``."""
        configured = self.of(model).pin
        return (model.name in self._pinned or model.name in self.settings.pin) if configured is None else configured

    def section_of(self, name: str) -> str:
        """Return the name of a model's section, by the model's registered name."""
        return self._sections.get(name, name)

    def request_rules(self, model: ModelIdentity) -> RequestRules:
        """Return the changes to the requests of a model."""
        settings = self.of(model)
        return RequestRules(settings.set, settings.drop, settings.system_prompt or "", settings.request_defaults)

    def groups_of(self, name: str) -> frozenset[str]:
        """Return the groups of a model by its registered name. Two groups may use different names for it."""
        # A group may name a model that is adopted later.
        by_name = {group for group, members in self.settings.groups.items() if name in members.models}
        return self._groups.get(name, frozenset()) | by_name

    def unknown(self, find: Callable[[str], CatalogueEntry | None]) -> Iterator[UnknownModel]:
        """Return the names in the configuration that mean no model, except checkpoints, which may be downloaded."""
        settings = self.settings
        named = [
            *((("pin",), name) for name in settings.pin),
            *((("load",), name) for name in settings.load),
            *((("models", name), name) for name in settings.models),
            *((("groups", group, "models"), name) for group, each in settings.groups.items() for name in each.models),
        ]
        return (UnknownModel(dotted_name(path), name) for path, name in named if "/" not in name and find(name) is None)

    def _section(self, name: str) -> ModelSettings:
        # A model that was adopted since the last index only has its registered name.
        own = self.settings.models.get(self.section_of(name), _NO_SECTION)
        remote, _, served_name = name.partition("/")
        section = self.settings.remotes.get(remote) if served_name else None
        return own if section is None else section.section_of(served_name, own)

    def _defaults(self, recipe: str) -> RecipeDefaults:
        return self.settings.defaults.get(recipe, _NO_DEFAULTS)


class ConfiguredPolicies:
    """Answers the scheduler's questions from the configuration.

    It satisfies :class:`supervisor.scheduler.policy.PolicySource`.
    """

    def __init__(self, configuration: ModelConfiguration, known: Callable[[str], CatalogueEntry | None]) -> None:
        """``known`` returns the entry that a name means, without a look at the disk."""
        self._configuration = configuration
        self._known = known

    @property
    def groups(self) -> dict[str, GroupPolicy]:
        """The groups by their names."""
        return {
            name: GroupPolicy(group.exclusive, group.swap, group.max_loaded)
            for name, group in self._configuration.settings.groups.items()
        }

    def of(self, model: str) -> ModelPolicy:
        """Return the policy of a model by its registered name. For an unknown model, its own section decides."""
        configuration = self._configuration
        key = self._known(model) or ModelKey(model, "")
        settings = configuration.of(key)
        least, most = settings.replica_range
        return ModelPolicy(
            ttl=configured_idle_time(configuration.settings.idle_ttl if settings.ttl is None else settings.ttl),
            pin=configuration.pinned(key),
            concurrency=settings.concurrency or 0,
            queue=settings.queue or 0,
            groups=configuration.groups_of(key.name),
            min_replicas=least,
            max_replicas=most,
        )


def engine_keys(configured: ModelSettings) -> dict[str, Any]:
    """Return the keys of a section that say which program or server runs the model; empty if the section names none."""
    given: dict[str, Any] = msgspec.to_builtins(configured)
    return {key: given[key] for key in OWN_ENGINE_KEYS if key in given}


def engine_fingerprint(configured: ModelSettings) -> str:
    """Return a fingerprint of what the sections of the configuration say about an engine; empty if they say nothing.

    An empty value counts: ``args = ""`` removes the arguments of the settings.
    """
    values = {
        key: value for key in sorted(ENGINE_KEYS) if (value := getattr(configured, key)) != getattr(_NO_SECTION, key)
    }
    return hashlib.sha256(msgspec.json.encode(values, order="deterministic")).hexdigest()[:16] if values else ""
