"""Pictures and recordings in messages come with the request: engines fetch nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.api.common.inference.media_urls import with_inline_media
from gateway.api.responses.input.content_parts import chat_content
from gateway.media.image_source import only_inline
from protocol.failures import LemonbusError

INLINE = "data:image/png;base64,AAAA"


def check(parts: list[dict[str, Any]]) -> None:
    messages = [{"role": "system", "content": "plain"}, {"role": "user", "content": parts}]
    data = msgspec.json.encode({"messages": messages})
    assert with_inline_media(data, (message["content"] for message in messages), only_inline) == data


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "http://169.254.169.254/latest"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/x.png", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}},
        {"type": "image_url", "image_url": {"url": ""}},
        {"type": "image_url", "image_url": {"url": 7}},
        {"type": "image_url", "image_url": {"data": "AAAA"}},
        {"type": "image_url"},
        {"type": "image_url", "image_url": "http://127.0.0.1:1/x.png"},
        {"type": "video_url", "video_url": {"url": "HTTP://example.com/x.mp4"}},
        {"type": "input_audio", "input_audio": {"url": "http://example.com/x.wav"}},
        {"type": "input_audio", "input_audio": {"data": "http://127.0.0.1:1/x.wav", "format": "wav"}},
        {"type": "input_video", "input_video": {"data": "http://127.0.0.1:1/x.mp4"}},
        {"type": "video_url", "video_url": {"data": "https://127.0.0.1:1/x.mp4"}},
        {"type": "video_url", "video_url": {"data": " file:/etc/passwd"}},
        {"type": "image_url", "image_url": {"url": INLINE, "data": "http://127.0.0.1:1/x.png"}},
    ],
)
def test_urls_of_other_places_are_refused_with_the_message_that_has_them(part: dict[str, Any]) -> None:
    with pytest.raises(LemonbusError, match="data:") as refused:
        check([{"type": "text", "text": "What is it?"}, part])
    field = f"messages[1].content[1].{part['type']}"
    assert (refused.value.failure.http_status, refused.value.failure.param) == (400, field)


def test_recordings_of_responses_are_refused_in_the_same_way() -> None:
    part = {"type": "input_audio", "input_audio": {"data": "http://127.0.0.1:1/x.wav", "format": "wav"}}
    with pytest.raises(LemonbusError, match="data:") as refused:
        chat_content([part], "input[0].content")
    assert refused.value.failure.param == "input[0].content[0].input_audio"
    inline = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    assert chat_content([inline], "input[0].content") == [inline]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "text", "text": "see http://example.com/x.png"},
        {"type": "image_url", "image_url": {"url": INLINE}},
        {"type": "image_url", "image_url": {"url": INLINE.replace("data", "DATA")}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    ],
)
def test_everything_else_is_the_engines_to_judge(part: dict[str, Any]) -> None:
    check([part])
