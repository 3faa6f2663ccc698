"""The policies of models and groups as the settings declare them: what the scheduler asks while the server runs.

A section may call a model by any of its names, also by one that it gets later, so names are looked up at each question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from protocol.config.model_settings import ModelSettings, RecipeDefaults, merge_model_settings
from protocol.config.settings import Settings
from supervisor.models.catalogue import CatalogueEntry
from supervisor.scheduler.policy import NO_TTL, GroupPolicy, ModelPolicy

_NO_DEFAULTS = RecipeDefaults()
_NO_SECTION = ModelSettings()


class ConfiguredPolicies:
    """Answers the scheduler's questions from the settings; it satisfies :class:`supervisor.scheduler.policy.PolicySource`."""

    def __init__(self, settings: Settings, known: Callable[[str], CatalogueEntry | None]) -> None:
        """``known`` returns the entry that a name means, without a look at the disk."""
        self._settings = settings
        self._known = known
        self._groups = {
            name: GroupPolicy(group.exclusive, group.swap, group.max_loaded) for name, group in settings.groups.items()
        }

    @property
    def groups(self) -> dict[str, GroupPolicy]:
        """The groups by their names."""
        return self._groups

    def of(self, model: str) -> ModelPolicy:
        """Return the policy of a model by its registered name."""
        settings, section = self._settings, self._section(model)
        return ModelPolicy(
            ttl=ttl_or_never(settings.idle_ttl if section.ttl is None else section.ttl),
            pin=self._names(model, settings.pin) if section.pin is None else section.pin,
            concurrency=section.concurrency or 0,
            queue=section.queue or 0,
            groups=frozenset(name for name, group in settings.groups.items() if self._names(model, group.models)),
        )

    def _section(self, model: str) -> ModelSettings:
        """Return what the sections of a model and of its recipe say, without ``[defaults]`` for a model that is not known."""
        entry = self._known(model)
        own = next((section for name, section in self._settings.models.items() if self._names(model, [name])), None)
        defaults = self._settings.defaults.get(entry.recipe) if entry else None
        return merge_model_settings(defaults or _NO_DEFAULTS, own or _NO_SECTION)

    def _names(self, model: str, names: Iterable[str]) -> bool:
        """Return whether one of these names means the model."""
        for name in names:
            found = self._known(name)
            if (found.name if found else name) == model:
                return True
        return False


def ttl_or_never(seconds: float) -> float:
    """Return idle seconds as the scheduler counts them: in settings and requests 0 means never."""
    return seconds or NO_TTL
