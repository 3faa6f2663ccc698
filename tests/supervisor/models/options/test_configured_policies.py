"""Settings as policies of the scheduler: which section counts for which model."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from protocol.config.settings import Settings
from protocol.times import NEVER_UNLOADED
from supervisor.models.catalogues.catalogue import CatalogueEntry
from supervisor.models.names import NameIndex
from supervisor.models.options.model_configuration import ConfiguredPolicies, ModelConfiguration
from supervisor.scheduler.policy import GroupPolicy, ModelPolicy

ENTRIES = {
    "Chat": CatalogueEntry("Chat", "o/chat:Q4_0", "llamacpp", aliases=["chat:1b"]),
    "Ears": CatalogueEntry("Ears", "o/ears", "whispercpp"),
}


def policies(**settings: Any) -> ConfiguredPolicies:
    configuration = ModelConfiguration(msgspec.convert(settings, Settings))
    names = NameIndex(ENTRIES)
    configuration.index(names.find)
    return ConfiguredPolicies(configuration, names.find)


@pytest.mark.parametrize(
    ("settings", "model", "policy"),
    [
        ({}, "Chat", ModelPolicy()),
        ({"idle_ttl": 60}, "Chat", ModelPolicy(ttl=60)),
        ({"idle_ttl": 60, "models": {"Chat": {"ttl": 0}}}, "Chat", ModelPolicy(ttl=NEVER_UNLOADED)),
        ({"idle_ttl": 60, "defaults": {"llamacpp": {"ttl": 5}}}, "Chat", ModelPolicy(ttl=5)),
        ({"idle_ttl": 60, "defaults": {"llamacpp": {"ttl": 5}}}, "Ears", ModelPolicy(ttl=60)),
        ({"defaults": {"llamacpp": {"ttl": 5}}, "models": {"chat:1b": {"ttl": 7}}}, "Chat", ModelPolicy(ttl=7)),
        ({"pin": ["chat:1b"]}, "Chat", ModelPolicy(pin=True)),
        ({"pin": ["chat:1b"]}, "Ears", ModelPolicy()),
        ({"pin": ["Chat"], "models": {"Chat": {"pin": False}}}, "Chat", ModelPolicy()),
        (
            {"models": {"Chat": {"pin": True, "concurrency": 2, "queue": 7}}},
            "Chat",
            ModelPolicy(NEVER_UNLOADED, True, 2, 7),
        ),
        ({"models": {"chat:1b": {"replicas": 2}}}, "Chat", ModelPolicy(min_replicas=2, max_replicas=2)),
        ({"models": {"Chat": {"max_replicas": 3}}}, "Chat", ModelPolicy(max_replicas=3)),
        ({"models": {"Chat": {"min_replicas": 2}}}, "Chat", ModelPolicy(min_replicas=2, max_replicas=2)),
        (
            {"models": {"Chat": {"min_replicas": 2, "max_replicas": 4}}},
            "Chat",
            ModelPolicy(min_replicas=2, max_replicas=4),
        ),
        ({"models": {"user.Later": {"pin": True}}}, "user.Later", ModelPolicy(pin=True)),
        (
            {"groups": {"g": {"models": ["chat:1b", "Ears"]}, "h": {"models": ["Ears"]}}},
            "Chat",
            ModelPolicy(groups=frozenset("g")),
        ),
    ],
)
def test_the_policy_of_a_model(settings: dict[str, Any], model: str, policy: ModelPolicy) -> None:
    assert policies(**settings).of(model) == policy


def test_groups_are_as_declared() -> None:
    declared = {"models": ["Chat"], "exclusive": True, "max_loaded": 3}
    assert policies(groups={"g": declared}).groups == {"g": GroupPolicy(exclusive=True, max_loaded=3)}
