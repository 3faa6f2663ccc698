"""The size and seeds in an image answer, and the seed that is chosen for a request without one."""

from __future__ import annotations

import base64
import json

import msgspec
import pytest

from gateway.api.openai.images import SEEDS, with_seed, with_seeds_and_size
from tests.support.images import png


def answer(*pictures: bytes, **more: object) -> bytes:
    data = [{"b64_json": base64.b64encode(picture).decode()} for picture in pictures]
    return json.dumps({"created": 1, "data": data, "output_format": "png", **more}).encode()


def test_a_given_seed_is_kept() -> None:
    body = b'{"prompt": "a",  "seed": 7}'
    assert with_seed(body, 7) == (body, 7)
    assert with_seed(body, 0) == (body, 0)


@pytest.mark.parametrize("seed", [None, -1])
def test_a_seed_is_chosen(seed: int | None) -> None:
    body = json.dumps({"prompt": "a", "seed": seed, "other": [1]}).encode()
    chosen = {with_seed(body, seed)[1] for _ in range(5)}
    assert len(chosen) > 1
    assert all(0 <= number < SEEDS for number in chosen)
    written, number = with_seed(body, seed)
    assert json.loads(written) == {"prompt": "a", "seed": number, "other": [1]}


def test_an_answer_has_its_size_and_seeds() -> None:
    pictures = [png(104, 72), png(104, 72)]
    written = json.loads(with_seeds_and_size(answer(*pictures), 7))
    assert (written["size"], written["created"], written["output_format"]) == ("104x72", 1, "png")
    assert [each["seed"] for each in written["data"]] == [7, 8]
    assert [base64.b64decode(each["b64_json"]) for each in written["data"]] == pictures


@pytest.mark.parametrize("picture", [b"", b"GIF89a", png(8, 8)[:10], bytes(100_000)])
def test_an_unknown_size_is_left_out(picture: bytes) -> None:
    written = json.loads(with_seeds_and_size(answer(picture), 1))
    assert "size" not in written
    assert written["data"][0]["seed"] == 1


@pytest.mark.parametrize("body", [b"", b"[]", b'{"data":1}', b'{"data":[1]}', b'{"data":[{"b64_json":"\xc3\xa9AAA"}]}'])
def test_malformed_answers_are_errors(body: bytes) -> None:
    with pytest.raises((ValueError, msgspec.DecodeError)):
        with_seeds_and_size(body, 1)
