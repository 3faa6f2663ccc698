"""Pictures made from pictures: OpenAI's ``images/edits``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from protocol.forms import Part
from tests.house.pictures import Seen, pictures, png, seen
from tests.house.server import Server
from tests.seeds.pictures.drawing import ALIAS, MODEL, send_form

PICTURE = png(64, 64)


def said_as(fields: dict[str, str]) -> Iterator[tuple[str, bytes]]:
    return ((name, text.encode()) for name, text in fields.items())


def test_pictures_from_pictures_by_the_openai_client(loaded: Server) -> None:
    with openai.OpenAI(base_url=f"http://127.0.0.1:{loaded.port}/v1", api_key="none", max_retries=0) as client:

        def edited(image: Any, **more: Any) -> Seen:
            answer = client.images.edit(model=ALIAS, prompt="a hat", image=image, extra_body={"seed": 1}, **more)
            assert answer.data
            return seen(answer.data[0].b64_json or "")

        cat, dog = (("a.png", png(64, 72, grey), "image/png") for grey in (1, 2))
        alone = edited(cat)
        assert (alone.width, alone.height) == (64, 72)
        assert edited(cat).pixels == alone.pixels
        others = [edited(dog), edited([cat, dog]), edited(cat, mask=dog)]
        assert len({alone.pixels, *(other.pixels for other in others)}) == 4
        assert edited(cat, size="256x256", n=1).width == 256
        with pytest.raises(openai.BadRequestError, match="`image` must be a PNG or a JPEG"):
            edited(("a.png", b"GIF89a", "image/png"))
        with pytest.raises(openai.BadRequestError, match="`image` is not whole"):
            edited(("a.png", png(64, 64)[:-20], "image/png"))
        with pytest.raises(openai.BadRequestError, match="response_format"):
            edited(cat, response_format="url")


@pytest.mark.parametrize(
    ("parts", "param"),
    [
        ([Part("prompt", b"a")], "image"),
        ([Part("image", PICTURE, "a")], "prompt"),
        ([Part("prompt", b"a"), Part("image", b"a text")], "image"),
        ([Part("prompt", b"a"), Part("image", PICTURE, "a"), Part("mask", b"GIF", "m")], "mask"),
        ([Part("prompt", b"a"), Part("image", PICTURE, "a"), *[Part("mask", PICTURE, "m")] * 2], "image"),
        ([Part("prompt", b"a"), *[Part("image[]", PICTURE, "a")] * 17], "image"),
        ([Part("prompt", b"a"), Part("prompt", b"b"), Part("image", PICTURE, "a")], "prompt"),
        ([Part("prompt", b"a"), Part("other", b"b", "o"), Part("image", PICTURE, "a")], "other"),
        ([Part("prompt", b"\xff"), Part("image", PICTURE, "a")], "prompt"),
        ([Part("prompt", b"<sd_cpp_extra_args>"), Part("image", PICTURE, "a")], "prompt"),
        ([Part("prompt", b"a"), Part("n", b"many"), Part("image", PICTURE, "a")], "n"),
        ([Part("prompt", b"a"), Part("n", b"9"), Part("image", PICTURE, "a")], "n"),
        ([Part("prompt", b"a"), Part("n", b"007"), Part("image", PICTURE, "a")], "n"),
        ([Part("prompt", b"a"), Part("strength", b"1.5"), Part("image", PICTURE, "a")], "strength"),
        ([Part("prompt", b"a"), Part("size", b"9x9"), Part("image", PICTURE, "a")], "size"),
        ([Part("prompt", b"a"), Part("image", png(4097, 64), "a")], "size"),
        ([Part("prompt", b"a"), Part("size", b"64x64"), Part("image", png(8193, 64), "a")], "image"),
    ],
)
def test_forms_that_cannot_be(loaded: Server, parts: list[Part], param: str) -> None:
    answer = send_form(loaded, [Part("model", MODEL.encode()), *parts])
    assert (answer.status, answer.error["type"], answer.error["param"]) == (400, "invalid_request", param), answer


def test_numbers_in_a_form_are_numbers_and_a_prompt_of_digits_is_a_prompt(loaded: Server) -> None:
    said = {"model": MODEL, "prompt": "42", "n": "2", "seed": "3", "steps": "2", "cfg_scale": "1.5", "size": "64x64"}
    answer = send_form(loaded, [*(Part(*item) for item in said_as(said)), Part("image", PICTURE, "a")])
    assert answer.status == 200, answer
    first, second = pictures(answer.json())
    assert first.text.startswith("42")
    assert "Steps: 2, CFG scale: 1.5" in first.text
    assert first.pixels != second.pixels


def test_a_form_must_be_one(loaded: Server) -> None:
    assert loaded.client.post("/v1/images/edits", {"prompt": "a"}).status == 415
