"""Images from a real server: document 000's load of an image model, and OpenAI's ``images/generations``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gateway.api.common.dialect import VERSION_PREFIXES
from tests.compatibility.images.image_requests import (
    ALIAS,
    BROKEN,
    DOCUMENTED,
    GENERATIONS,
    MODEL,
    draw,
    drawing,
    engine,
    kill_engine,
    start,
)
from tests.support import processes
from tests.support.clients.deferred_packages import openai
from tests.support.images import pictures, seen
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

# POST /v1/load, document 000


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


# POST images/generations


@pytest.mark.parametrize("prefix", VERSION_PREFIXES)
def test_under_every_prefix_and_it_loads_the_model(server: LemonbusServer, prefix: str) -> None:
    answer = server.client.post(f"{prefix}/images/generations", {"model": ALIAS, "prompt": "a cat", "size": "72x64"})
    assert answer.status == 200, answer
    body = answer.json()
    assert set(body) >= {"created", "data"}
    ((picture),) = pictures(body)
    assert (picture.width, picture.height) == (72, 64)
    assert "sd_cpp_extra_args" not in picture.text


def test_the_openai_client(loaded: LemonbusServer) -> None:
    with openai.OpenAI(base_url=f"http://127.0.0.1:{loaded.port}/v1", api_key="none", max_retries=0) as client:
        answer = client.images.generate(
            model=ALIAS, prompt="a cat", n=2, size="256x256", response_format="b64_json", extra_body={"seed": 7}
        )
        assert answer.data
        assert [seen(each.b64_json or "").width for each in answer.data] == [256, 256]
        assert answer.created > 0
        with pytest.raises(openai.BadRequestError, match="response_format"):
            client.images.generate(model=ALIAS, prompt="a cat", response_format="url")


def test_seed_steps_scale_and_negative_prompt(loaded: LemonbusServer) -> None:
    def pixels(**body: Any) -> bytes:
        (picture,) = pictures(draw(loaded, **body).json())
        return picture.pixels

    usual = pixels(seed=1)
    assert pixels(seed=1) == usual
    others = [pixels(seed=2), pixels(), pixels(), pixels(seed=1, steps=3), pixels(seed=1, cfg_scale=2.5)]
    others += [pixels(seed=1, negative_prompt='a "dog"</sd_cpp_extra_args>'), pixels(seed=1, prompt="ein Kätzchen 猫")]
    assert len({usual, *others}) == 8
    first, second = pictures(draw(loaded, seed=1, n=2).json())
    assert (first.pixels, second.pixels) == (usual, pixels(seed=2))


def test_the_answer_has_the_drawn_size_and_the_seed(loaded: LemonbusServer) -> None:
    answer = draw(loaded, size="100x70", n=2).json()
    assert answer["size"] == "104x72", "what the model can draw"
    first, second = (each["seed"] for each in answer["data"])
    assert second == first + 1
    again = draw(loaded, size="100x70", seed=second).json()
    assert again["data"][0]["seed"] == second
    assert pictures(again)[0].pixels == pictures(answer)[1].pixels


def test_large_pictures_are_complete(loaded: LemonbusServer) -> None:
    answer = draw(loaded, size="1280x1024", steps=1)
    assert len(answer.body) > loaded.settings.inbox_bytes
    (picture,) = pictures(answer.json())
    assert (picture.width, picture.height) == (1280, 1024)


def test_without_a_model_the_loaded_image_model_is_used(loaded: LemonbusServer) -> None:
    assert loaded.client.chat("extra.tiny-chat").status == 200
    answer = loaded.client.post(GENERATIONS, {"prompt": "a cat", "size": "64x64", "quality": "hd", "user": "me"})
    assert answer.status == 200, answer


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": ["a"]}, "prompt"),
        ({"prompt": "x" * 32_001}, "prompt"),
        ({"prompt": 'a <sd_cpp_extra_args>{"width":9}</sd_cpp_extra_args>'}, "prompt"),
        ({"n": 0}, "n"),
        ({"n": 9}, "n"),
        ({"n": "2"}, "n"),
        ({"size": "huge"}, "size"),
        ({"size": "64"}, "size"),
        ({"size": "64x-64"}, "size"),
        ({"size": "64x64x64"}, "size"),
        ({"size": "32x64"}, "size"),
        ({"size": "64x9999999"}, "size"),
        ({"response_format": "url"}, "response_format"),
        ({"response_format": "png"}, "response_format"),
        ({"output_format": "bmp"}, "output_format"),
        ({"output_compression": 101}, "output_compression"),
        ({"stream": True}, "stream"),
        ({"seed": 0.5}, "seed"),
        ({"seed": -2}, "seed"),
        ({"steps": 0}, "steps"),
        ({"steps": 101}, "steps"),
        ({"cfg_scale": -1}, "cfg_scale"),
        ({"negative_prompt": 3}, "negative_prompt"),
        ({"negative_prompt": "x" * 4_001}, "negative_prompt"),
        ({"scheduler": "<a>"}, "scheduler"),
    ],
)
def test_what_cannot_be(loaded: LemonbusServer, body: dict[str, Any], param: str) -> None:
    answer = draw(loaded, **body)
    assert (answer.status, answer.error["type"], answer.error["param"]) == (400, "invalid_request", param), answer


def test_what_the_engine_refuses(loaded: LemonbusServer) -> None:
    answer = draw(loaded, output_format="webp")
    assert answer.status == 400, answer
    assert "must be one of [png, jpeg]" in answer.error["message"]


def test_a_chat_model_draws_nothing_and_an_image_model_does_not_chat(loaded: LemonbusServer) -> None:
    assert draw(loaded, model="No-Such-Model").status == 404
    answer = draw(loaded, model="extra.tiny-chat")
    assert answer.status in (400, 501), answer
    answer = loaded.client.post(
        "/v1/chat/completions", {"model": MODEL, "messages": [{"role": "user", "content": "a"}]}
    )
    assert answer.status in (400, 501), answer


def test_stats_count_no_tokens(loaded: LemonbusServer) -> None:
    assert draw(loaded).status == 200

    def figures() -> Any:
        answer = loaded.client.get(f"/v1/stats?model={MODEL}")
        return answer.status == 200 and answer.json()

    assert wait_for(figures, "its figures are there")["output_tokens"] == 0


# What is promised of every engine


def test_an_engine_that_dies_is_replaced_and_the_picture_drawn_again(loaded: LemonbusServer, tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    request = start(loaded, f"a cat until {allowed}", steps=3, seed=1)
    there = kill_engine(loaded)
    allowed.touch()
    answer = request.finish()
    assert answer.status == 200, answer
    (picture,) = pictures(answer.json())
    assert "Seed: 1," in picture.text
    assert engine(loaded) not in (None, there)


def test_a_second_death_of_the_engine_is_an_error(loaded: LemonbusServer) -> None:
    request = start(loaded, "an endless cat")
    before = drawing(loaded)
    kill_engine(loaded)
    wait_for(lambda: drawing(loaded) > before, "it is drawn again", 10)
    kill_engine(loaded)
    answer = request.finish()
    assert (answer.status, answer.error["code"]) == (500, "backend_died"), answer
    assert "SIGKILL" in answer.error["message"]
    assert draw(loaded).status == 200


def test_a_picture_may_end_within_a_second_after_its_client_left(loaded: LemonbusServer, tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    request = start(loaded, f"a cat until {allowed}", steps=3)
    there = engine(loaded)
    assert there is not None
    ended = len(requests(loaded))
    with processes.stopped(there.parent):  # its second begins when the picture has ended
        request.hang_up()
        wait_for(lambda: len(requests(loaded)) > ended, "its gateway knows")
        allowed.touch()
        wait_for(lambda: not allowed.exists(), "the engine has worked on to the end")
    wait_for(lambda: loaded.state()["granted"] == 0, "the grant is free")
    assert draw(loaded).status == 200
    assert engine(loaded) == there


def requests(server: LemonbusServer) -> list[dict[str, Any]]:
    """The generations that have ended, as gateways log them."""
    return [line for line in server.lines if line["event"] == "request" and line["path"] == GENERATIONS]


def progress(server: LemonbusServer) -> list[dict[str, Any]]:
    return [each for model in server.state()["models"] for each in model["progress"]]


def test_a_long_picture_blocks_nobody_after_its_client_left(loaded: LemonbusServer) -> None:
    request = start(loaded, "an endless cat")
    there = engine(loaded)
    waiting = loaded.client.start("POST", GENERATIONS, {"model": MODEL, "prompt": "a cat", "size": "64x64"})
    wait_for(lambda: loaded.state()["queued"] == 1, "the next one waits")
    wait_for(lambda: progress(loaded), "health tells how far it is")
    (reported,) = progress(loaded)
    assert reported["request_id"].startswith("req-")
    assert (reported["total"], reported["unit"]) == (100, "steps")
    assert 1 <= reported["done"] < 100
    request.hang_up()
    assert waiting.finish(20).status == 200
    assert engine(loaded) not in (None, there)


def test_its_engine_is_started_again_although_nobody_waits(loaded: LemonbusServer) -> None:
    request = start(loaded, "an endless cat")
    there = engine(loaded)
    request.hang_up()
    wait_for(lambda: engine(loaded) not in (None, there), "another engine is there", 10)
    wait_for(lambda: MODEL in {each["model_name"] for each in loaded.health()["all_models_loaded"]}, "it is ready", 10)
    assert loaded.state()["granted"] == 0
