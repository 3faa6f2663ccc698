"""Image models of a real server: document 000's load, their options, and files, arguments and backends that cannot be used."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.compatibility.images.image_requests import (
    ALIAS,
    BROKEN,
    DOCUMENTED,
    MODEL,
    draw,
    engine,
)
from tests.support.images import pictures
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for


def test_the_documents_example(loaded: LemonbusServer) -> None:
    answer = loaded.client.post("/v1/load", DOCUMENTED)
    expected_fields = {"status": "success", "message": f"Loaded model: {ALIAS}", "model_name": MODEL}
    assert answer.json().items() >= expected_fields.items(), "the request's options and the registered ones"
    health = loaded.health()
    (shown,) = [each for each in health["all_models_loaded"] if each["model_name"] == MODEL]
    assert (shown["type"], shown["device"], shown["recipe"]) == ("image", "cpu", "sd-cpp")
    assert shown["checkpoint"] == "stabilityai/sd-turbo:sd_turbo.safetensors"
    assert (
        shown["recipe_options"].items() >= {key: DOCUMENTED[key] for key in DOCUMENTED if key != "model_name"}.items()
    )
    assert health["model_loaded"] == MODEL


def test_options_of_a_request_precede_saved_ones_then_the_models_then_the_recipes(server: LemonbusServer) -> None:
    def options() -> dict[str, Any]:
        (shown,) = [each for each in server.health()["all_models_loaded"] if each["model_name"] == MODEL]
        return dict(shown["recipe_options"])

    def load(**options: Any) -> None:
        assert server.client.post("/v1/load", {"model_name": MODEL, **options}).status == 200

    load(width=64, steps=2, save_options=True)
    assert options().items() >= {"width": 64, "height": 512, "steps": 2, "cfg_scale": 1.0}.items()
    load(width=128, height=64)
    assert options().items() >= {"width": 128, "height": 64, "steps": 2}.items()
    (picture,) = pictures(draw(server, size=None).json())
    assert (picture.width, picture.height) == (128, 64)
    assert "Steps: 2, CFG scale: 1.0" in picture.text
    load(save_options=True)
    assert options().items() >= {"width": 512, "height": 512, "steps": 4}.items()


def test_a_model_shows_what_requests_get_that_do_not_say_it(server: LemonbusServer) -> None:
    def defaults(query: str = "") -> dict[str, Any]:
        found: dict[str, Any] = server.client.get(f"/v1/models/{MODEL}{query}").json()["image_defaults"]
        (listed,) = [each for each in server.client.get("/v1/models").json()["data"] if each["id"] == MODEL]
        assert listed["image_defaults"] == found
        return found

    server.client.post("/v1/unload", {"model_name": MODEL})
    of_the_catalogue = {"steps": 4, "cfg_scale": 1.0, "width": 512, "height": 512}
    assert defaults() == of_the_catalogue
    options = f"/v1/models/{MODEL}/options"
    own = {"sampling_method": "euler", "flow_shift": 3, "width": 128, "height": 64}
    assert server.client.post(options, own).status == 200
    assert defaults() == {**of_the_catalogue, **own}
    try:
        (picture,) = pictures(draw(server, size=None).json())
        assert (picture.width, picture.height) == (128, 64)
        assert "Steps: 4, CFG scale: 1.0" in picture.text
        assert "Sampler: euler, Shift: 3" in picture.text
        (picture,) = pictures(draw(server, size="64x64", sample_method="lcm", flow_shift=2, steps=5).json())
        assert (picture.width, picture.height) == (64, 64)
        assert "Steps: 5" in picture.text
        assert "Sampler: lcm, Shift: 2" in picture.text
        assert server.client.start("DELETE", options).finish().json()["reload_needed"] is True
        assert defaults() == {**of_the_catalogue, **own}, "the loaded engine keeps them"
    finally:
        server.client.start("DELETE", options).finish()
        server.client.post("/v1/unload", {"model_name": MODEL})
    assert defaults() == of_the_catalogue
    assert "image_defaults" not in server.client.get("/v1/models/extra.tiny-chat").json()


@pytest.mark.parametrize("model", BROKEN)
def test_files_that_cannot_be_loaded(loaded: LemonbusServer, model: str) -> None:
    there = engine(loaded)
    answer = loaded.client.post("/v1/load", {"model_name": model})
    # The engine does not say what is wrong with the last one.
    expected = (503, "load_failed") if model == "user.Picky" else (500, "model_unusable")
    assert (answer.status, answer.error["code"]) == expected, answer
    assert re.search(BROKEN[model][2], answer.error["message"])
    assert "/" not in answer.error["message"]
    if model != "user.Picky":
        assert engine(loaded) == there, "no model was unloaded for it"


@pytest.mark.parametrize("args", ["--no-such-flag", "--listen-port 1", "--lora-model-dir /", "--vae /etc/passwd"])
def test_arguments_that_a_client_may_not_send(server: LemonbusServer, args: str) -> None:
    answer = server.client.post("/v1/load", {"model_name": MODEL, "sdcpp_args": args})
    assert (answer.status, answer.error["param"]) == (400, "sdcpp_args")


def test_a_backend_that_is_not_installed(server: LemonbusServer) -> None:
    answer = server.client.post("/v1/load", {"model_name": MODEL, "sd-cpp_backend": "vulkan"})
    assert (answer.status, answer.error["param"]) in [(409, "sd-cpp_backend"), (501, "sd-cpp_backend")], answer
    assert "sd-cpp:vulkan" in answer.error["message"]
    assert answer.headers["x-should-retry"] == "false"


def test_unload_ends_the_engine(loaded: LemonbusServer) -> None:
    assert engine(loaded)
    assert loaded.client.post("/v1/unload", {"model_name": ALIAS}).status == 200
    wait_for(lambda: engine(loaded) is None, "its engine is gone")


def test_system_info_knows_the_program(server: LemonbusServer) -> None:
    backends = server.client.get("/v1/system-info").json()["recipes"]["sd-cpp"]["backends"]
    assert backends["system"]["state"] == backends["default"]["state"] == "installed"
    assert Path(server.settings.sd_server).name not in json.dumps(backends)
