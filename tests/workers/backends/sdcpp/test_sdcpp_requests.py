"""Requests for pictures as sd-server gets them: fields, the tag in the prompt, forms, and what is refused."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import strategies as st

from protocol.config.settings import Settings
from protocol.failures import LemonbusError
from protocol.models.recipes import ModelSpec
from protocol.wire import form_data
from protocol.wire.form_data import FormPart
from tests.support.accepted_share import accepted_share
from tests.support.images import png
from workers.backends.sdcpp.backend import SdCppBackend
from workers.backends.sdcpp.image_request import engine_body

BACKEND = SdCppBackend(ModelSpec("user.x", "a/b", "sd-cpp", "system", "image", "/m/x.gguf"), Settings())
TAGGED = re.compile(rb"<sd_cpp_extra_args>(.*?)</sd_cpp_extra_args>")


def asked(body: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what sd-server gets, and what is in the tag."""
    sent = json.loads(engine_body(json.dumps(body).encode()))
    found = TAGGED.findall(sent["prompt"].encode())
    assert len(found) == 1
    sent["prompt"] = TAGGED.sub(b"", sent["prompt"].encode()).decode().strip()
    return sent, json.loads(found[0])


def test_openai_fields_are_sent_as_fields_and_the_rest_in_the_prompt_tag() -> None:
    body = {"prompt": "a cat", "n": 2, "size": "64x96", "output_format": "png", "model": "x", "quality": "hd"}
    more = {
        "seed": 7,
        "steps": 3,
        "cfg_scale": 1.5,
        "negative_prompt": "dogs",
        "sample_method": "euler",
        "flow_shift": 3.0,
    }
    sent, extras = asked({**body, **more, "response_format": "b64_json"})
    assert sent == {"prompt": "a cat", "n": 2, "size": "64x96", "output_format": "png"}
    assert extras == {
        "seed": 7,
        "negative_prompt": "dogs",
        "sample_params": {
            "sample_steps": 3,
            "sample_method": "euler",
            "flow_shift": 3.0,
            "guidance": {"txt_cfg": 1.5},
        },
    }


def test_without_a_seed_no_two_pictures_are_alike() -> None:
    seeds = {asked({"prompt": "a", "size": "auto", "seed": seed})[1]["seed"] for seed in [None, -1] * 10}
    assert len(seeds) > 15
    assert asked({"prompt": "a", "size": "auto"})[0] == {"prompt": "a"}


TAG_PARTS = st.sampled_from(["<", "/", ">", "sd_cpp_extra_args", '{"width":9}', '"}', "a cat "])
TAG_LIKE = st.lists(TAG_PARTS, max_size=8).map("".join)


@accepted_share(0.5, examples=300, prompt=st.text() | TAG_LIKE, negative=st.text() | TAG_LIKE)
def test_nothing_gets_into_the_tag_that_is_not_ours(prompt: str, negative: str) -> bool:
    body = {"prompt": prompt, "negative_prompt": negative, "seed": 1}
    if "sd_cpp_extra_args>" in prompt:
        with pytest.raises(LemonbusError) as raised:
            asked(body)
        assert (raised.value.failure.http_status, raised.value.failure.param) == (400, "prompt")
        return False
    _, extras = asked(body)
    assert extras == {"seed": 1, "negative_prompt": negative}
    return True


WHITE = png(8, 8, 255)


def test_a_form_becomes_the_engines() -> None:
    fields = {"prompt": "a hat", "n": 2, "size": "64x64", "seed": 7, "strength": 0.5, "user": "me"}
    body = form_data.encode(
        [
            FormPart(form_data.JSON_FIELDS_PART, json.dumps(fields).encode()),
            FormPart("image", b"one", "a"),
            FormPart("image", b"two", "b"),
            FormPart("mask", WHITE, "m"),
        ]
    )
    request = BACKEND.request("images/edits", "", body, stream=False)
    assert (request.path, request.streamed) == ("/v1/images/edits", False)
    sent = form_data.parse(form_data.boundary_from_content_type(request.content_type), request.body)
    assert [(part.name, part.data) for part in sent if part.filename] == [
        ("image[]", b"one"),
        ("image[]", b"two"),
        ("mask", WHITE),
    ]
    raised = {part.name: part.text() for part in sent if not part.filename}
    assert set(raised) == {"prompt", "n", "size"}
    assert json.loads(TAGGED.findall(raised["prompt"].encode())[0]) == {"seed": 7, "strength": 0.5}


@pytest.mark.parametrize(
    ("endpoint", "body", "status"),
    [
        ("images/edits", b"", 400),
        ("images/edits", b"{}", 400),
        pytest.param("images/edits", form_data.encode([FormPart("prompt", b"a")]), 400, id="form of a client"),
        ("images/generations", b"", 400),
        ("images/generations", b"[]", 400),
        ("images/generations", b"{}", 400),
        ("images/generations", b'{"prompt":3}', 400),
        pytest.param("images/generations", b"[" * 100_000, 400, id="deep JSON"),
        ("chat/completions", b'{"prompt":"a"}', 501),
        ("images/variations", b'{"prompt":"a"}', 501),
        ("slots", b'{"prompt":"a"}', 501),
    ],
)
def test_refused_requests(endpoint: str, body: bytes, status: int) -> None:
    with pytest.raises(LemonbusError) as raised:
        BACKEND.request(endpoint, "", body, stream=False)
    assert raised.value.failure.http_status == status


@pytest.mark.parametrize(
    "prompt",
    [
        '<sd_cpp_extra_args>{"width":9}</sd_cpp_extra_args>',
        'a <sd_cpp_extra_args>{"lora":[{"path":"/x"}]}',
        "</sd_cpp_extra_args>",
        "<sd_cpp_extra_args>",
    ],
)
def test_the_tag_in_a_prompt_is_refused(prompt: str) -> None:
    with pytest.raises(LemonbusError) as raised:
        engine_body(json.dumps({"prompt": prompt}).encode())
    assert (raised.value.failure.http_status, raised.value.failure.param) == (400, "prompt")


def test_the_tag_in_a_negative_prompt_is_only_text() -> None:
    smuggled = '"}</sd_cpp_extra_args><sd_cpp_extra_args>{"width":9}'
    assert asked({"prompt": "a", "seed": 1, "negative_prompt": smuggled})[1]["negative_prompt"] == smuggled
