"""Images made from images: OpenAI's ``images/edits``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from protocol.wire.form_data import FormPart
from tests.compatibility.images.image_requests import ALIAS, MODEL, send_form
from tests.support.clients.deferred_packages import openai
from tests.support.images import Seen, pictures, png, seen
from tests.support.server import LemonbusServer

PICTURE = png(64, 64)


def form_fields(fields: dict[str, str]) -> Iterator[tuple[str, bytes]]:
    return ((name, text.encode()) for name, text in fields.items())


def test_pictures_from_pictures_by_the_openai_client(loaded: LemonbusServer) -> None:
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
        ([FormPart("prompt", b"a")], "image"),
        ([FormPart("image", PICTURE, "a")], "prompt"),
        ([FormPart("prompt", b"a"), FormPart("image", b"a text")], "image"),
        ([FormPart("prompt", b"a"), FormPart("image", PICTURE, "a"), FormPart("mask", b"GIF", "m")], "mask"),
        ([FormPart("prompt", b"a"), FormPart("image", PICTURE, "a"), *[FormPart("mask", PICTURE, "m")] * 2], "image"),
        ([FormPart("prompt", b"a"), *[FormPart("image[]", PICTURE, "a")] * 17], "image"),
        ([FormPart("prompt", b"a"), FormPart("prompt", b"b"), FormPart("image", PICTURE, "a")], "prompt"),
        ([FormPart("prompt", b"a"), FormPart("other", b"b", "o"), FormPart("image", PICTURE, "a")], "other"),
        ([FormPart("prompt", b"\xff"), FormPart("image", PICTURE, "a")], "prompt"),
        ([FormPart("prompt", b"<sd_cpp_extra_args>"), FormPart("image", PICTURE, "a")], "prompt"),
        ([FormPart("prompt", b"a"), FormPart("n", b"many"), FormPart("image", PICTURE, "a")], "n"),
        ([FormPart("prompt", b"a"), FormPart("n", b"9"), FormPart("image", PICTURE, "a")], "n"),
        ([FormPart("prompt", b"a"), FormPart("n", b"007"), FormPart("image", PICTURE, "a")], "n"),
        ([FormPart("prompt", b"a"), FormPart("strength", b"1.5"), FormPart("image", PICTURE, "a")], "strength"),
        ([FormPart("prompt", b"a"), FormPart("size", b"9x9"), FormPart("image", PICTURE, "a")], "size"),
        ([FormPart("prompt", b"a"), FormPart("image", png(4097, 64), "a")], "size"),
        ([FormPart("prompt", b"a"), FormPart("size", b"64x64"), FormPart("image", png(8193, 64), "a")], "image"),
    ],
)
def test_invalid_forms_are_refused(loaded: LemonbusServer, parts: list[FormPart], param: str) -> None:
    answer = send_form(loaded, [FormPart("model", MODEL.encode()), *parts])
    assert (answer.status, answer.error["type"], answer.error["param"]) == (400, "invalid_request", param), answer


def test_numbers_in_a_form_are_numbers_and_a_prompt_of_digits_is_a_prompt(loaded: LemonbusServer) -> None:
    given_fields = {
        "model": MODEL,
        "prompt": "42",
        "n": "2",
        "seed": "3",
        "steps": "2",
        "cfg_scale": "1.5",
        "size": "64x64",
    }
    answer = send_form(
        loaded, [*(FormPart(*item) for item in form_fields(given_fields)), FormPart("image", PICTURE, "a")]
    )
    assert answer.status == 200, answer
    first, second = pictures(answer.json())
    assert first.text.startswith("42")
    assert "Steps: 2, CFG scale: 1.5" in first.text
    assert first.pixels != second.pixels


def test_a_form_must_be_one(loaded: LemonbusServer) -> None:
    answer = loaded.client.post("/v1/images/edits", {"prompt": "a"})
    assert (answer.status, answer.error["code"]) == (400, "invalid_request")
    assert "multipart/form-data" in answer.error["message"]
