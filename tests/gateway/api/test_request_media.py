"""Media in requests: images are data URLs, recordings base64, and what is neither text nor one of these is refused."""

from __future__ import annotations

import base64
import io
import itertools
from typing import Any

import gevent
import msgspec
import pytest
from PIL import Image

from gateway.api.common.inference.chat_fields import with_inline_media
from gateway.decoding.limits import MAX_MEDIA
from gateway.fetching.image_source import only_inline
from gateway.requests import preparation, request_media
from protocol.failures import LemonbusError
from protocol.wire import form_data
from protocol.wire.form_data import FormPart
from tests.gateway.app_client import AppClient
from tests.support.images import png
from tests.support.media import data_url, png_of, written
from workers.backends.registry import DESCRIPTORS

INLINE = "data:image/png;base64,AAAA"
PICTURE = data_url(png(4, 4))
CODED = PICTURE.partition(",")[2]
URL_SAFE = base64.urlsafe_b64encode(png(40, 40)).decode()


def chat(*parts: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "system", "content": "plain"}, {"role": "user", "content": parts}]}


def image(url: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


@pytest.mark.parametrize(
    "url", ["http://169.254.169.254/latest", "file:///etc/passwd", "", "HTTP://a/", " data:image/png;base64,AAAA"]
)
def test_images_of_other_places_are_refused(url: str) -> None:
    body = chat({"type": "text", "text": "What is it?"}, image(url))
    contents = (message["content"] for message in body["messages"])
    contents = (list(each) if isinstance(each, tuple) else each for each in contents)
    with pytest.raises(LemonbusError, match="data:") as refused:
        with_inline_media(msgspec.json.encode(body), contents, only_inline)
    assert refused.value.failure.param == "messages[1].content[1].image_url"


@pytest.mark.parametrize(
    "part",
    [
        image(7),
        image("data:image/png,AAAA"),
        image("data:image/svg+xml;base64"),
        image("data:;base64 ,AAAA"),
        image("data:image/png;base64,A*AA"),
        image("data:image/png;base64,AAAAA"),
        image(data_url(b"<svg xmlns='http://www.w3.org/2000/svg'/>", "image/svg+xml")),
        image(data_url(b"II*\0" + bytes(40), "image/tiff")),
        image(data_url(b"\0\0\1\0\1\0" + bytes(40), "image/x-icon")),
        image(data_url(b"\0\0\0\x1cftypheic" + bytes(40), "image/heic")),
        image(data_url(b"\0\0\0\x1cftypavif" + bytes(40), "image/avif")),
        image(data_url(b"P6\n1 1\n255\n\0\0\0")),
        image(data_url(b"")),
        {"type": "image_url"},
        {"type": "image_url", "image_url": {"data": "AAAA"}},
        {"type": "image_url", "image_url": None},
        {"type": "input_audio", "input_audio": {"url": "http://example.com/x.wav"}},
        {"type": "input_audio", "input_audio": {"data": "http://127.0.0.1:1/x.wav", "format": "wav"}},
        {"type": "input_audio", "input_audio": "AAAA"},
        {"type": "input_video", "input_video": {"data": "AAAA"}},
        {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}},
        {"type": "media_marker", "text": "x"},
        {"type": "audio_url", "audio_url": {"url": "data:audio/wav;base64,AAAA"}},
        {"type": ["image_url"], "image_url": {"url": INLINE}},
        {"text": "no type"},
        "a text",
        None,
        [image(PICTURE)],
    ],
)
def test_content_that_is_not_text_image_or_recording_is_refused_with_its_place(ask: AppClient, part: Any) -> None:
    for path in ("/v1/chat/completions", "/apply-template"):
        result = ask("POST", path, chat({"type": "text", "text": "x"}, part))
        assert result.status_code == 400, result.text
        failure = result.json.get("error", result.json)
        assert "content[1]" in (failure.get("param") or failure["message"]) or "content" in str(failure)
        assert not ask.bus.bodies


@pytest.mark.parametrize(
    "url",
    [
        PICTURE,
        PICTURE.replace("data:", "DATA:"),
        PICTURE.replace("image/png", "image/jpeg"),
        PICTURE.replace("image/png", "image/png;charset=utf-8;name=x"),
        PICTURE.replace("image/png", ""),
        PICTURE.replace(";base64", ";BASE64"),
        PICTURE.rstrip("="),
        "data:image/png;base64," + "\r\n".join(CODED[at : at + 20] for at in range(0, len(CODED), 20)),
        f"data:image/png;base64,{URL_SAFE}",
    ],
)
def test_engines_get_every_spelling_of_an_image_in_one_form(ask: AppClient, url: str) -> None:
    ask.answers["chat/completions"] = {"choices": []}
    part = {**image(url), "cache_control": {"type": "ephemeral"}}
    assert ask("POST", "/v1/chat/completions", chat(part)).status_code == 200
    (sent,) = msgspec.json.decode(ask.bus.bodies[0])["messages"][1]["content"]
    assert sent.keys() == {"type", "image_url"}
    head, _, coded = sent["image_url"]["url"].partition(",")
    assert head == "data:image/png;base64"
    assert base64.b64decode(coded, validate=True).startswith(b"\x89PNG")


def test_other_greenlets_run_between_the_steps_over_a_large_body(
    ask: AppClient, monkeypatch: pytest.MonkeyPatch, unchanged_media: None
) -> None:
    del unchanged_media
    turns, noted = itertools.count(), []

    def take_turns() -> None:
        while True:
            next(turns)
            gevent.sleep(0)

    def note(module: Any, name: str) -> None:
        function = getattr(module, name)

        def noting(*arguments: Any) -> Any:
            noted.append(next(turns))
            return function(*arguments)

        monkeypatch.setattr(module, name, noting)

    note(preparation, "fields_within_limits")
    note(preparation, "request_digest")
    note(request_media, "reserve")
    ask.answers["chat/completions"] = {"choices": []}
    others = gevent.spawn(take_turns)
    try:
        assert ask("POST", "/v1/chat/completions", chat(image(INLINE + "A" * 2**18))).status_code == 200
    finally:
        others.kill()
    assert len(noted) == 3
    assert all(later - earlier > 1 for earlier, later in itertools.pairwise([0, *noted]))


@pytest.mark.parametrize("content", [image(PICTURE), 7, True, {"text": "x"}])
def test_content_of_another_form_is_refused(ask: AppClient, content: Any) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": content}]}
    for path in ("/v1/chat/completions", "/apply-template"):
        assert ask("POST", path, body).status_code == 400
        assert not ask.bus.bodies


@pytest.mark.parametrize(
    "prompt",
    [
        {"prompt_string": "x", "multimodal_data": ["AAAA"]},
        {"prompt_string": "x", "multimodal_data": "AAAA"},
        {"prompt_string": "x", "multimodal_data": {"a": "AAAA"}},
        {"prompt_string": "x", "multimodal_data": [7]},
        ["x", {"prompt_string": "x", "multimodal_data": ["AAAA"]}],
        ["x", ["y", {"prompt_string": "x", "multimodal_data": ["AAAA"]}]],
    ],
)
def test_media_of_native_prompts_are_decoded_too(ask: AppClient, prompt: Any) -> None:
    for path, field in (("/completion", "prompt"), ("/embedding", "content"), ("/embedding", "input")):
        result = ask("POST", path, {"model": "m", field: prompt})
        assert result.status_code == 400, result.text
        assert not ask.bus.bodies


def test_the_names_of_fields_may_be_escaped(ask: AppClient) -> None:
    body = msgspec.json.encode(chat({"type": "input_video", "input_video": {"data": "AAAA"}}))
    body = body.replace(b"input_video", b"input\\u005fvideo").replace(b'"content"', b'"c\\u006fntent"')
    assert ask("POST", "/v1/chat/completions", body).status_code == 400
    native = b'{"model":"m","prompt":{"prompt_string":"x","multim\\u006fdal_data":["AAAA"]}}'
    assert ask("POST", "/completion", native).status_code == 400
    assert not ask.bus.bodies


def test_the_last_of_two_fields_counts(ask: AppClient) -> None:
    """Engines also use the last one."""
    ask.answers["chat/completions"] = {"choices": []}
    one, other = msgspec.json.encode(chat({"type": "text", "text": "x"})), msgspec.json.encode(chat(image(INLINE)))
    for first, last, status in ((one, other, 400), (other, one, 200)):
        body = first[:-1] + b"," + last[1:]
        assert ask("POST", "/v1/chat/completions", body).status_code == status
    (sent,) = ask.bus.bodies
    assert msgspec.json.decode(sent)["messages"][1]["content"] == [{"type": "text", "text": "x"}]


def test_a_request_has_a_limit_of_images(ask: AppClient) -> None:
    result = ask("POST", "/v1/chat/completions", chat(*[image(PICTURE)] * (MAX_MEDIA + 1)))
    assert result.status_code == 400
    assert str(MAX_MEDIA) in result.text


def edit(*files: FormPart) -> dict[str, Any]:
    body = form_data.encode([FormPart("model", b"m"), FormPart("prompt", b"x"), *files])
    kind = f"{form_data.MEDIA_TYPE}; boundary={form_data.boundary_from_body(body)}"
    return {"body": body, "headers": {"Content-Type": kind}}


def test_edited_images_and_masks_are_written_anew(ask: AppClient) -> None:
    """This includes a PNG of one pixel that contains megabytes, because an engine would unpack all of it."""
    ask.answers["images/edits"] = {"created": 1, "data": [{"b64_json": CODED}]}
    image = png_of(1, 1, bytes(5_000_000), (b"tEXt", b"k\0secret"))
    mask = written(Image.new("RGBA", (4, 4), (0, 0, 0, 0)), "PNG")
    result = ask(
        "POST", "/v1/images/edits", **edit(FormPart("image[]", image, "a.png"), FormPart("mask", mask, "m.png"))
    )
    assert result.status_code == 200, result.text
    (sent,) = ask.bus.bodies
    parts = {part.name: part for part in form_data.parse(form_data.boundary_from_body(sent), sent)}
    assert len(parts["image"].data) < 100
    assert b"secret" not in sent
    assert Image.open(io.BytesIO(parts["mask"].data)).getchannel("A").getextrema() == (0, 0)
    broken = ask("POST", "/v1/images/edits", **edit(FormPart("image", mask[:-20] + b"IEND\0\0\0\0", "a.png")))
    assert (broken.status_code, broken.json["error"]["param"]) == (400, "image")


WITHOUT_MEDIA = {
    "audio/speech",
    "images/generations",
    "rerank",
    "tokenize",
    "detokenize",
    "props",
    "slots",
}


def test_every_endpoint_of_every_recipe_is_known_to_have_media_or_none() -> None:
    served = {endpoint for recipe in DESCRIPTORS.values() for each in recipe.serves.values() for endpoint in each}
    assert served - set(request_media._READERS) == WITHOUT_MEDIA
