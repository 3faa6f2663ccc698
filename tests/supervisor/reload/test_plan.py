"""The plan of a reload: when each setting takes effect, sections compared key by key, and masked secrets."""

from __future__ import annotations

import msgspec
import pytest

from protocol.config.model_settings import GroupSettings, ModelSettings, RecipeDefaults
from protocol.config.settings import SECTIONS, Settings
from protocol.messages.reload import SettingChange, SettingEffect
from supervisor.models.options.model_configuration import ENGINE_KEYS, engine_fingerprint
from supervisor.processes.setting_effects import EFFECTS
from supervisor.reload.plan import ReloadableModel, needs_reload, plan_reload

BASE = Settings(state_dir="/s", cache_dir="/c", runtime_dir="/r")
CHAT = ModelSettings(options={"ctx_size": 2048}, ttl=60)


def changed(new: Settings, *loaded: ReloadableModel, old: Settings = BASE) -> list[SettingChange]:
    return plan_reload(old, new, {"port": "/etc/lemonbus.toml:3", "models.chat": "/etc/lemonbus.toml:9"}, loaded)


def test_every_setting_has_its_moment() -> None:
    assert set(EFFECTS) == {field.name for field in msgspec.structs.fields(Settings)} - set(SECTIONS)
    engine_keys = {field.name for field in msgspec.structs.fields(ModelSettings)}
    assert engine_keys >= ENGINE_KEYS


def test_nothing_changes_with_the_same_settings() -> None:
    assert changed(BASE) == []


@pytest.mark.parametrize(
    ("name", "value", "effects"),
    [
        ("max_loaded_models", 7, [SettingEffect.NOW]),
        ("body_limit", 77, [SettingEffect.GATEWAYS]),
        ("port", 77, [SettingEffect.LISTENER, SettingEffect.GATEWAYS]),
        ("ctx_size", 77, [SettingEffect.NEW_LOADS]),
        ("grace", 7.0, [SettingEffect.NOW, SettingEffect.GATEWAYS, SettingEffect.NEW_LOADS]),
        ("runtime_dir", "/other", [SettingEffect.NEXT_START]),
    ],
)
def test_a_changed_setting(name: str, value: object, effects: list[SettingEffect]) -> None:
    origin = "/etc/lemonbus.toml:3" if name == "port" else ""
    expected = SettingChange(name, getattr(BASE, name), value, effects, origin)
    assert changed(msgspec.structs.replace(BASE, **{name: value})) == [expected]


def test_keys_are_masked() -> None:
    (change,) = changed(msgspec.structs.replace(BASE, api_key="secret"))
    assert (change.old, change.new) == ("", "********")


def test_variables_of_an_engine_are_masked() -> None:
    (change,) = changed(msgspec.structs.replace(BASE, models={"chat": ModelSettings(env={"HF_TOKEN": "secret"})}))
    assert (change.setting, change.old, change.new) == ("models.chat.env", {}, {"HF_TOKEN": "********"})


def test_a_new_section_is_compared_with_what_is_unset() -> None:
    changes = changed(msgspec.structs.replace(BASE, models={"chat": CHAT}))
    assert [(each.setting, each.old, each.new, each.effects, each.origin) for each in changes] == [
        ("models.chat.options", {}, {"ctx_size": 2048}, [SettingEffect.NEW_LOADS], "/etc/lemonbus.toml:9"),
        ("models.chat.ttl", None, 60, [SettingEffect.NOW], "/etc/lemonbus.toml:9"),
    ]


def test_a_section_that_is_gone() -> None:
    old = msgspec.structs.replace(BASE, groups={"big": GroupSettings(models=["a"], exclusive=True)})
    assert [(each.setting, each.old, each.new) for each in changed(BASE, old=old)] == [
        ("groups.big.models", ["a"], None),
        ("groups.big.exclusive", True, False),
    ]


@pytest.mark.parametrize("section", ["models", "defaults"])
def test_a_loaded_model_is_reloaded_for_what_its_engine_gets(section: str) -> None:
    new: dict[str, dict[str, ModelSettings] | dict[str, RecipeDefaults]] = {
        "models": {"alias": ModelSettings(args="--jinja", ttl=9)},
        "defaults": {"llamacpp": RecipeDefaults(args="--jinja", ttl=9)},
    }
    merged = ModelSettings(args="--jinja", ttl=9)
    chat = ReloadableModel("chat", "llamacpp", frozenset({"chat", "alias"}), ModelSettings(), merged)
    other = ReloadableModel("other", "whispercpp", frozenset({"other"}), ModelSettings(), ModelSettings())
    effects = {
        each.setting.rpartition(".")[2]: (each.effects, each.models)
        for each in changed(msgspec.structs.replace(BASE, **{section: new[section]}), chat, other)
    }
    assert effects == {
        "args": ([SettingEffect.MODEL_RELOAD], ["chat"]),
        "ttl": ([SettingEffect.NOW], []),
    }


@pytest.mark.parametrize(
    "changed_to", [ModelSettings(args=""), ModelSettings(args="--jinja"), ModelSettings(env={"A": "1"})]
)
def test_what_is_announced_is_what_a_new_supervisor_finds(changed_to: ModelSettings) -> None:
    model = ReloadableModel("chat", "llamacpp", frozenset({"chat"}), ModelSettings(), changed_to)
    assert needs_reload(model)
    assert engine_fingerprint(changed_to) != engine_fingerprint(ModelSettings()) == ""


def test_a_default_that_the_model_overrides_reloads_nothing() -> None:
    own = ModelSettings(args="--own")
    chat = ReloadableModel("chat", "llamacpp", frozenset({"chat"}), own, own)
    new = msgspec.structs.replace(BASE, defaults={"llamacpp": RecipeDefaults(args="--jinja")})
    assert [(each.effects, each.models) for each in changed(new, chat)] == [([SettingEffect.NEW_LOADS], [])]
