"""What a reload changes: setting by setting, with the moment when each change takes effect. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from protocol.config.model_settings import NODE_KEYS, GroupSettings, ModelSettings, RecipeDefaults, RemoteSettings
from protocol.config.resolver import masked
from protocol.config.sections import MASK, dotted_name
from protocol.config.settings import Settings
from protocol.messages.reload import SettingChange, SettingEffect
from supervisor.models.options.model_configuration import ENGINE_KEYS, engine_fingerprint
from supervisor.processes.setting_effects import EFFECTS

Section = (
    Mapping[str, ModelSettings]
    | Mapping[str, RecipeDefaults]
    | Mapping[str, GroupSettings]
    | Mapping[str, RemoteSettings]
)


class ReloadableModel(NamedTuple):
    """A model that has an engine: its registered name, its recipe, and what sections say about it now and in the new file."""

    name: str
    recipe: str
    names: frozenset[str]
    """All of its names, because a section may use any of them."""
    old: ModelSettings
    new: ModelSettings


def plan_reload(
    old: Settings, new: Settings, origins: Mapping[str, str], loaded: Sequence[ReloadableModel]
) -> list[SettingChange]:
    """Return the changes in the order in which the settings are declared. ``origins``: where new values come from."""
    changes = [
        SettingChange(
            name,
            masked(name, getattr(old, name)),
            masked(name, getattr(new, name)),
            list(effects),
            origins.get(name, ""),
        )
        for name, effects in EFFECTS.items()
        if getattr(old, name) != getattr(new, name)
    ]
    sections: list[tuple[str, Section, Section, Callable[[str], list[ReloadableModel]]]] = [
        ("models", old.models, new.models, lambda name: [model for model in loaded if name in model.names]),
        ("defaults", old.defaults, new.defaults, lambda name: [model for model in loaded if model.recipe == name]),
        ("groups", old.groups, new.groups, lambda _name: []),
        ("remotes", old.remotes, new.remotes, lambda name: [model for model in loaded if _is_of(model, name)]),
    ]
    for section, before, after, concerned in sections:
        for name in dict.fromkeys([*before, *after]):
            prefix = dotted_name((section, name))
            for key, was, is_now in _differences(before.get(name), after.get(name)):
                setting = f"{prefix}.{key}"
                reloaded = [model.name for model in concerned(name) if key in ENGINE_KEYS and needs_reload(model)]
                effects = [_effect(section, key, reloaded=bool(reloaded))]
                origin = origins.get(setting, origins.get(prefix, ""))
                changes.append(SettingChange(setting, was, is_now, effects, origin=origin, models=reloaded))
    return changes


def needs_reload(model: ReloadableModel) -> bool:
    """Return whether the engine of a model was started with values that differ from the new configuration."""
    return engine_fingerprint(model.old) != engine_fingerprint(model.new)


def _is_of(model: ReloadableModel, remote: str) -> bool:
    return any(name.startswith(f"{remote}/") for name in model.names)


def _effect(section: str, key: str, *, reloaded: bool) -> SettingEffect:
    if section != "groups" and key in ENGINE_KEYS:
        return SettingEffect.MODEL_RELOAD if reloaded else SettingEffect.NEW_LOADS
    if section == "models" and key in NODE_KEYS:
        return SettingEffect.NEW_LOADS
    return SettingEffect.NEXT_START if key == "preload" else SettingEffect.NOW


def _differences(old: msgspec.Struct | None, new: msgspec.Struct | None) -> Iterator[tuple[str, Any, Any]]:
    """Yield the keys in which two entries of a section differ, with both values; None where there is no entry."""
    declared = old if old is not None else new
    if declared is None:
        return
    unset = {
        field.name: field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        for field in msgspec.structs.fields(declared)
    }
    for key, default in unset.items():
        was = default if old is None else getattr(old, key)
        is_now = default if new is None else getattr(new, key)
        if was != is_now:
            yield key, _shown(key, was), _shown(key, is_now)


def _shown(key: str, value: Any) -> Any:
    """Return a value as people may see it: environment variables often hold secrets."""
    if value is msgspec.NODEFAULT:
        return None
    return dict.fromkeys(value, MASK) if key == "env" else value
