"""Images from a real server: OpenAI's ``images/generations``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.api.common.dialect import VERSION_PREFIXES
from tests.compatibility.images.image_requests import (
    ALIAS,
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
