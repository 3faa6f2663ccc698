"""Which model each section is for, its effect on the model, and values that no recipe accepts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from protocol.config.model_settings import ModelSettings
from protocol.config.settings import Settings
from protocol.failures import LemonbusError
from protocol.requests.request_rules import RequestRules
from supervisor.models.options.settings_check import check_settings
from supervisor.models.registry import ModelRegistry
from tests.supervisor.models.model_files import MakeModels

BUILT_IN = "SmolLM2-135M-Instruct-GGUF"
CHECKPOINT = "bartowski/SmolLM2-135M-Instruct-GGUF"


def sections(**kinds: Any) -> dict[str, Any]:
    converted = msgspec.convert(kinds, Settings)
    return {name: getattr(converted, name) for name in kinds}


def settings_of(models: ModelRegistry, name: str) -> ModelSettings:
    return models.configuration.of(models.resolve(name))


def names_of(models: ModelRegistry) -> tuple[str, str]:
    """The names of a built-in model: the registered one, and its checkpoint."""
    entry = models.resolve(BUILT_IN)
    return entry.name, entry.checkpoint


def test_a_section_is_found_by_any_name_of_its_model(make: MakeModels) -> None:
    name, checkpoint = names_of(make())
    for given in (name, checkpoint, f"hf:{checkpoint}", f"{name}:latest"):
        models = make(**sections(models={given: {"ttl": 5}}))
        assert settings_of(models, name).ttl == 5.0
        assert not models.problems


def test_an_alias_means_the_model_in_every_place_that_takes_a_name(make: MakeModels) -> None:
    models = make(**sections(models={BUILT_IN: {"aliases": ["gpt-4o", "small"], "ttl": 7}}, groups={}), pin=["small"])
    for alias in ("gpt-4o", "small", "small:latest"):
        assert models.resolve(alias).name == BUILT_IN
        assert settings_of(models, alias).ttl == 7.0
    assert models.configuration.pinned(models.resolve("gpt-4o"))


def test_an_alias_wins_over_names_that_users_and_catalogues_gave(make: MakeModels) -> None:
    other = next(entry for entry in make().entries(show_all=True) if entry.aliases and entry.id != BUILT_IN)
    models = make(**sections(models={BUILT_IN: {"aliases": [other.aliases[0], "mine"]}}))
    models.user_aliases.add_alias("mine", other.id)
    assert models.resolve(other.aliases[0]).name == BUILT_IN
    assert models.resolve("mine").name == BUILT_IN


def test_an_alias_that_is_the_name_of_another_model_is_reported(make: MakeModels) -> None:
    other = next(entry.id for entry in make().entries(show_all=True) if entry.id != BUILT_IN)
    models = make(**sections(models={BUILT_IN: {"aliases": [other]}}))
    assert models.resolve(other).name == other
    assert models.problems == [f"models.{BUILT_IN}.aliases: has no effect for {other}, the name of {other}"]


def test_two_sections_of_one_model(make: MakeModels) -> None:
    name, checkpoint = names_of(make())
    for order in ([name, checkpoint], [checkpoint, name]):
        models = make(**sections(models={each: {"ttl": 1 + (each == name)} for each in order}))
        assert settings_of(models, name).ttl == 2.0, "the section with the registered name"
        assert "has no effect beside the section" in models.problems[0]


def test_a_section_without_a_model_takes_effect_when_the_model_appears(make: MakeModels, extra: Path) -> None:
    models = make(**sections(models={"extra.late": {"aliases": ["soon"], "ttl": 3}}))
    assert [each.name for each in models.configuration.unknown(models.find)] == ["extra.late"]
    assert models.find("soon") is None
    (extra / "late.gguf").write_bytes(b"GGUF" + bytes(64))
    assert settings_of(models, "extra.late").ttl == 3.0
    assert models.resolve("soon").name == "extra.late"


def test_an_adopted_checkpoint_has_its_section_at_once(make: MakeModels) -> None:
    models = make(**sections(models={"owner/repo:Q4_0": {"ttl": 9, "pin": True}}))
    entry = models.resolve_or_adopt("owner/repo:Q4_0")
    assert models.configuration.of(entry).ttl == 9.0
    assert models.configuration.pinned(entry)


def test_a_recipes_section_is_for_all_its_models(make: MakeModels) -> None:
    defaults = {"llamacpp": {"ttl": 60, "set": {"seed": 1}, "pin": True}, "whispercpp": {"ttl": 5}}
    models = make(**sections(defaults=defaults, models={BUILT_IN: {"set": {"seed": 2}, "pin": False}}), pin=[BUILT_IN])
    found = models.resolve(BUILT_IN)
    assert (models.configuration.of(found).ttl, models.configuration.of(found).set) == (60.0, {"seed": 2})
    assert not models.configuration.pinned(found), "the model's own section wins over the setting pin"


def test_pin_preload_and_request_rules(make: MakeModels) -> None:
    section = {"preload": True, "set": {"a": 1}, "drop": ["b"], "system_prompt": "c"}
    models = make(**sections(models={BUILT_IN: section, "x": {"preload": True}}), load=["x", "y"], pin=[BUILT_IN])
    assert models.configuration.preload == ["x", "y", BUILT_IN]
    assert models.configuration.pinned(models.resolve(BUILT_IN))
    rules = models.configuration.request_rules(models.resolve(BUILT_IN))
    assert rules == RequestRules({"a": 1}, ["b"], "c")


def test_groups(make: MakeModels) -> None:
    name, checkpoint = names_of(make())
    groups = {
        "g": {"models": [checkpoint, "not.known"], "swap": True},
        "h": {"models": [name], "exclusive": True},
    }
    models = make(**sections(groups=groups))
    assert models.configuration.groups_of(name) == {"g", "h"}
    assert models.configuration.groups_of("not.known") == {"g"}
    assert models.configuration.groups_of("other") == set()


def test_what_other_settings_would_say_changes_nothing(make: MakeModels) -> None:
    models = make(**sections(models={BUILT_IN: {"ttl": 1, "aliases": ["old"]}}))
    assert settings_of(models, "old").ttl == 1.0
    changed = Settings(**sections(models={BUILT_IN: {"ttl": 2, "aliases": ["new"]}}))
    entry = models.resolve("old")
    assert models.configuration_of(changed).of(entry).ttl == 2.0
    assert models.find("new") is None
    assert models.configuration.of(entry).ttl == 1.0


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ({"defaults": {"steam": {"ttl": 1}}}, "defaults.steam: there is no such recipe; there are: llamacpp"),
        (
            {"defaults": {"llamacpp": {"options": {"steps": 3}}}},
            "defaults.llamacpp.options.steps: steps is not an option of recipe llamacpp; there are: ctx_size",
        ),
        (
            {"defaults": {"llamacpp": {"options": {"ctx_size": -2}}}},
            "defaults.llamacpp.options.ctx_size: ctx_size must be from -1 up to 16777216",
        ),
        (
            {"defaults": {"command": {"options": {"slots": 3}}}},
            "defaults.command.options.slots: slots is not an option of recipe command; it has none: the section of its mod",
        ),
        (
            {"defaults": {"llamacpp": {"args": "--port 1"}}},
            "defaults.llamacpp.args: llamacpp_args must not contain --po",
        ),
        ({"defaults": {"remote": {"nice": 3}}}, "defaults.remote.nice: has no effect on models of other servers"),
        (
            {"defaults": {"remote": {"env": {"A": "b"}}}},
            "defaults.remote.env: has no effect on models of other servers",
        ),
        ({"defaults": {"oga-cpu": {"args": ""}}}, "defaults.oga-cpu.args: recipe oga-cpu takes no arguments"),
        (
            {"defaults": {"llamacpp": {"env": {"LLAMA_ARG_PORT": "1"}}}},
            "defaults.llamacpp.env.LLAMA_ARG_PORT: the engine reads it as an option: use args or options",
        ),
        (
            {"defaults": {"whispercpp": {"devices": ["CUDA0"]}}},
            "defaults.whispercpp.devices: recipe whispercpp takes numbers and UUIDs of GPUs only",
        ),
        (
            {"models": {BUILT_IN: {"options": {"steps": 3}}}},
            f"models.{BUILT_IN}.options.steps: steps is not an option of recipe llamacpp",
        ),
        (
            {"models": {"not.known": {"options": {"cttx": 3}}}},
            'models."not.known".options.cttx: cttx is not an option of recipe llamacpp',
        ),
        (
            {"models": {BUILT_IN: {"args": "--nonsense"}}},
            f"models.{BUILT_IN}.args: llamacpp_args: unknown argument --nonsense",
        ),
        (
            {"defaults": {"whispercpp": {"args": "--nonsense"}}},
            "defaults.whispercpp.args: whispercpp_args: unknown argument --nonsense",
        ),
        (
            {
                "defaults": {"llamacpp": {"options": {"llamacpp_backend": "system"}, "args": "--of-another-program"}},
                "models": {BUILT_IN: {"options": {"llamacpp_backend": "cpu"}, "args": "--of-another-program"}},
            },
            f"models.{BUILT_IN}.args: llamacpp_args: unknown argument --of-another-program",
        ),
    ],
)
def test_what_no_recipe_accepts_ends_the_start(kinds: dict[str, Any], expected: str) -> None:
    with pytest.raises(LemonbusError) as caught:
        check_settings(Settings(**sections(**kinds)))
    assert str(caught.value).startswith(expected)
    assert caught.value.failure.param == expected.partition(": ")[0]


def test_what_some_recipe_accepts_may_be_for_a_model_that_is_not_known_yet() -> None:
    options = {"options": {"steps": 3}, "args": "--lora /any/file.gguf"}
    check_settings(Settings(**sections(models={"not.known": options}, defaults={"llamacpp": {"devices": ["CUDA0"]}})))


def test_what_turns_out_wrong_later_is_reported_and_left_out(make: MakeModels, extra: Path) -> None:
    models = make(**sections(models={"extra.late": {"options": {"steps": 3, "cfg_scale": 1.0}, "ttl": 4}}))
    (extra / "late.gguf").write_bytes(b"GGUF" + bytes(64))
    entry = models.resolve("extra.late")
    assert models.configuration.options(entry).model == {}
    assert models.configuration.of(entry).ttl == 4.0
    assert any(
        line.startswith('models."extra.late".options.steps: is left out: steps is no') for line in models.problems
    )


def test_a_spec_has_the_configured_options_arguments_variables_and_devices(make: MakeModels, extra: Path) -> None:
    (extra / "m.gguf").write_bytes(b"GGUF" + bytes(64))
    model = {"options": {"slots": 2}, "args": "--mlock", "env": {"A": "1"}, "devices": ["0"], "pin": True}
    models = make(**sections(models={"extra.m": model}, defaults={"llamacpp": {"options": {"slots": 9, "threads": 3}}}))
    spec = models.spec("extra.m", {"ctx_size": 77})
    expected = {"slots": 2, "threads": 3, "ctx_size": 77, "llamacpp_args": "--mlock"}
    assert {name: spec.options[name] for name in expected} == expected
    assert (spec.env, spec.devices) == ({"A": "1"}, ["0"])


def test_a_client_may_not_say_what_the_operator_may(make: MakeModels, extra: Path) -> None:
    (extra / "m.gguf").write_bytes(b"GGUF" + bytes(64))
    models = make(**sections(models={"extra.m": {"args": "--log-file /tmp/x"}}))
    assert models.spec("extra.m", {}).options["llamacpp_args"] == "--log-file /tmp/x"
    with pytest.raises(LemonbusError, match="--log-file cannot be sent with a load"):
        models.spec("extra.m", {"llamacpp_args": "--log-file /tmp/x"})
