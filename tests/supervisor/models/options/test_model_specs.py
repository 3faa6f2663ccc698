"""Which options, backend and files a worker is told to load a model with."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.config.model_settings import ModelSettings
from protocol.config.settings import Settings
from protocol.failures import Code, LemonbusError
from supervisor.models.catalogues.catalogue import CatalogueEntry
from supervisor.models.files import ModelFiles
from supervisor.models.options.model_configuration import ConfiguredOptions
from supervisor.models.options.model_specs import (
    choose_backend,
    descriptor_of,
    merged_options,
    model_spec,
    option_layers,
)

LLAMACPP = descriptor_of(CatalogueEntry("m", "o/m", "llamacpp"))
CONFIGURED = ModelSettings(env={"A": "b"}, devices=["1"])
ORIGINS = ["settings", "defaults", "catalogue", "model", "saved", "asked"]
SIZES = [(origin, 1024 * number) for number, origin in enumerate(ORIGINS, 1)]


@pytest.mark.parametrize("given", range(1, len(SIZES) + 1))
def test_a_request_comes_before_saved_options_the_model_its_catalogue_its_recipe_and_the_settings(given: int) -> None:
    sizes = dict(SIZES[:given])
    option: dict[str, dict[str, Any]] = {origin: {"ctx_size": size} for origin, size in sizes.items()}
    entry = CatalogueEntry("m", "o/m", "llamacpp", options={**option.get("catalogue", {}), "steps": 4})
    settings = Settings(ctx_size=sizes["settings"])
    configured = ConfiguredOptions(option.get("defaults", {}), option.get("model", {}))
    layers = option_layers(entry, LLAMACPP, settings, configured, option.get("saved", {}))
    merged = merged_options(layers, option.get("asked", {}))
    assert merged["ctx_size"] == SIZES[given - 1][1]
    assert "steps" not in merged, "llamacpp has no such option"


def test_a_spec_has_the_first_backend_that_the_machine_can_run() -> None:
    entry = CatalogueEntry("m", "o/m:Q4_0", "llamacpp", labels=["vision"])
    spec = model_spec(
        entry, LLAMACPP, {}, ModelFiles("/m.gguf", "", 7, 0), frozenset({"cpu"}), CONFIGURED, {"ctx_size": 7}
    )
    backend = choose_backend(LLAMACPP, {}, {"cpu"})
    assert (spec.backend, spec.device) == (backend.name, backend.device)
    assert "cpu" in backend.devices
    assert (spec.name, spec.checkpoint, spec.path, spec.size) == ("m", "o/m:Q4_0", "/m.gguf", 7)
    assert (spec.env, spec.devices, spec.labels) == (CONFIGURED.env, CONFIGURED.devices, ["vision"])


@pytest.mark.parametrize("restart", [False, True])
def test_the_section_says_whether_a_program_that_goes_on_after_a_hang_up_is_started_again(*, restart: bool) -> None:
    entry = CatalogueEntry("m", "", "command", configured=True)
    configured = ModelSettings(command=["/bin/own", "{port}"], restart_on_hangup=restart)
    spec = model_spec(entry, descriptor_of(entry), {}, ModelFiles("", "", 0, 0), frozenset({"cpu"}), configured, {})
    assert spec.restartable is restart


def test_a_backend_that_the_recipe_does_not_have_is_the_callers_error() -> None:
    with pytest.raises(LemonbusError, match="llamacpp_backend must be one of") as caught:
        choose_backend(LLAMACPP, {"llamacpp_backend": "steam"}, {"cpu"})
    assert (caught.value.failure.code, caught.value.failure.param) == (Code.INVALID_REQUEST, "llamacpp_backend")


def test_a_model_of_an_unknown_recipe_cannot_be_run() -> None:
    with pytest.raises(LemonbusError, match="needs recipe steam, which cannot be run here") as caught:
        descriptor_of(CatalogueEntry("m", "o/m", "steam"))
    assert caught.value.failure.code is Code.UNSUPPORTED
