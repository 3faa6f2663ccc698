"""The policies of models and groups as the configuration declares them; the scheduler asks for these while the server runs."""

from __future__ import annotations

from collections.abc import Callable

from supervisor.models.catalogues.catalogue import CatalogueEntry
from supervisor.models.options.model_configuration import ModelConfiguration, ModelKey
from supervisor.scheduler.policy import NO_TTL, GroupPolicy, ModelPolicy


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
        return ModelPolicy(
            ttl=ttl_or_never(configuration.settings.idle_ttl if settings.ttl is None else settings.ttl),
            pin=configuration.pinned(key),
            concurrency=settings.concurrency or 0,
            queue=settings.queue or 0,
            groups=configuration.groups_of(key.name),
        )


def ttl_or_never(seconds: float) -> float:
    """Return idle seconds as the scheduler counts them: in settings and requests, 0 means never."""
    return seconds or NO_TTL
