"""Images of clients and real engines: in no API does an engine start a program for an image or fetch an address that it names."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from PIL import Image

from tests.conftest import StartServer
from tests.support import processes
from tests.support.audio import wav
from tests.support.clients.http_client import engine_client
from tests.support.media import data_url, matroska, noise, playlist, written
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

VISION = "extra.tiny-vision"
Call = tuple[str, dict[str, Any]]


class Trap(NamedTuple):
    """A server whose PATH has ``ffprobe`` and ``ffmpeg``, which tell that they were started, and an address that must not be asked."""

    server: LemonbusServer
    started: Path
    listener: socket.socket

    @property
    def address(self) -> str:
        """The address."""
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def assert_untouched(self) -> None:
        """Fail if a program was started, or the address asked."""
        assert not self.started.exists(), self.started.read_text()
        with pytest.raises(BlockingIOError):
            self.listener.accept()


@pytest.fixture(scope="module")
def trap(start_module_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trap]:
    folder = tmp_path_factory.mktemp("programs")
    started = folder / "started"
    for name in ("ffprobe", "ffmpeg"):
        (folder / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {started}\nexit 1\n')
        (folder / name).chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        server = start_module_server("tiny-vision", environment={"PATH": f"{folder}:{os.environ['PATH']}"})
        yield Trap(server, started, listener)


def chat(*parts: Any) -> dict[str, Any]:
    return {"model": VISION, "max_tokens": 4, "messages": [{"role": "user", "content": list(parts)}]}


def openai_image(url: str) -> Call:
    return "/v1/chat/completions", chat({"type": "image_url", "image_url": {"url": url}})


def text_of_url(url: str) -> Call:
    return "/v1/chat/completions", chat({"type": "image_url", "image_url": url})


def tool_result(url: str) -> Call:
    function = {"name": "f", "arguments": "{}"}
    calls = [{"id": "a", "type": "function", "function": function}]
    content = [{"type": "image_url", "image_url": {"url": url}}]
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "a", "content": content},
    ]
    return "/v1/chat/completions", {"model": VISION, "max_tokens": 4, "messages": messages}


def input_tokens(url: str) -> Call:
    return "/v1/responses/input_tokens", {**responses(url)[1], "max_output_tokens": None}


def template(url: str) -> Call:
    return "/apply-template", openai_image(url)[1]


def responses(url: str) -> Call:
    content = [{"type": "input_image", "image_url": url}]
    return "/v1/responses", {
        "model": VISION,
        "max_output_tokens": 16,
        "input": [{"role": "user", "content": content}],
    }


def anthropic_block(url: str) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": url.partition(",")[2]}}


def messages(url: str) -> Call:
    return "/v1/messages", chat(anthropic_block(url))


def result_of_a_tool(url: str) -> Call:
    use = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": [anthropic_block(url)]}
    turns = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]
    return "/v1/messages", {"model": VISION, "max_tokens": 4, "messages": turns}


def count_tokens(url: str) -> Call:
    body = chat(anthropic_block(url))
    del body["max_tokens"]
    return "/v1/messages/count_tokens", body


def mullama_chat(url: str) -> Call:
    message = {"role": "user", "content": "hi", "images": [url.partition(",")[2]]}
    return "/api/chat", {"model": VISION, "stream": False, "messages": [message]}


def mullama_generate(url: str) -> Call:
    return "/api/generate", {"model": VISION, "stream": False, "prompt": "hi", "images": [url.partition(",")[2]]}


def native_object(url: str) -> dict[str, Any]:
    return {"prompt_string": "<__media__> hi", "multimodal_data": [url.partition(",")[2]]}


def completion(url: str) -> Call:
    return "/completion", {"model": VISION, "n_predict": 4, "prompt": native_object(url)}


def completion_in_a_list(url: str) -> Call:
    return "/completion", {"model": VISION, "n_predict": 4, "prompt": ["hi", native_object(url)]}


def text_completion(url: str) -> Call:
    return "/v1/completions", {"model": VISION, "max_tokens": 4, "prompt": [native_object(url)]}


def as_audio(url: str) -> Call:
    audio = {"data": url.partition(",")[2], "format": "wav"}
    return "/v1/chat/completions", chat({"type": "input_audio", "input_audio": audio})


def as_audio_of_a_response(url: str) -> Call:
    audio = {"data": url.partition(",")[2], "format": "mp3"}
    content = [{"type": "input_audio", "input_audio": audio}]
    return "/v1/responses", {"model": VISION, "input": [{"role": "user", "content": content}]}


def video(url: str) -> Call:
    return "/v1/chat/completions", chat({"type": "video_url", "video_url": {"url": url}})


def input_video(url: str) -> Call:
    return "/v1/chat/completions", chat({"type": "input_video", "input_video": {"data": url.partition(",")[2]}})


def content_that_is_an_object(url: str) -> Call:
    part = {"type": "image_url", "image_url": {"url": url}}
    return "/apply-template", {"model": VISION, "messages": [{"role": "user", "content": part}]}


def nested_content(url: str) -> Call:
    return "/v1/chat/completions", chat({"type": "content", "content": [{"type": "image_url", "image_url": url}]})


IMAGES = [
    *(openai_image, text_of_url, tool_result, input_tokens, template, responses, messages, result_of_a_tool),
    *(count_tokens, mullama_chat, mullama_generate, completion, completion_in_a_list),
]
OTHERS = [
    *(as_audio, as_audio_of_a_response, video, input_video, content_that_is_an_object, nested_content),
    text_completion,
]


@pytest.mark.parametrize("call", [*IMAGES, *OTHERS])
def test_a_playlist_and_a_video_are_refused_before_an_engine_sees_them(trap: Trap, call: Callable[[str], Call]) -> None:
    for data in (playlist(trap.address), matroska(), b"ffconcat version 1.0\nfile /etc/passwd\n"):
        answer = trap.server.client.post(*call(data_url(data)))
        assert answer.status == 400, answer
        trap.assert_untouched()


@pytest.mark.parametrize("call", [each for each in IMAGES if each is not tool_result])
def test_an_image_is_read_in_every_api(trap: Trap, call: Callable[[str], Call]) -> None:
    assert trap.server.client.post("/v1/load", {"model_name": VISION}).status == 200
    marker = trap.server.client.get(f"/props?model={VISION}").json()["media_marker"]
    path, body = call(data_url(written(Image.new("RGB", (16, 16), (200, 30, 30)), "PNG")))
    answer = trap.server.client.post(path, json.loads(json.dumps(body).replace("<__media__>", marker)))
    assert answer.status == 200, answer


@pytest.mark.parametrize(
    "data",
    [
        written(noise(40, 30), "JPEG"),
        written(noise(40, 30), "WEBP"),
        written(noise(40, 30).convert("P"), "GIF"),
        written(noise(40, 30), "BMP"),
        written(noise(40, 30).convert("CMYK"), "JPEG"),
        written(Image.frombytes("I;16", (16, 16), bytes(512)), "PNG"),
    ],
    ids=["jpeg", "webp", "gif", "bmp", "cmyk", "16 bits"],
)
def test_formats_that_the_engine_cannot_read_are_converted(trap: Trap, data: bytes) -> None:
    answer = trap.server.client.post(*openai_image(data_url(data)))
    assert answer.status == 200, answer
    trap.assert_untouched()


def test_the_engine_refuses_a_recording_for_a_model_without_audio(trap: Trap) -> None:
    answer = trap.server.client.post(*as_audio(data_url(wav(0.1))))
    assert answer.status == 400
    assert "audio" in answer.error["message"]


def test_an_engine_that_is_asked_directly_finds_no_program(trap: Trap) -> None:
    """The second protection: even if a file passed the first one, the engine would find no program for it."""
    picture = written(Image.new("L", (8, 8)), "PNG")
    assert trap.server.client.post(*openai_image(data_url(picture))).status == 200
    engine = trap.server.engine(VISION)
    assert b"PATH=/dev/null" in Path(f"/proc/{engine.pid}/environ").read_bytes().split(b"\0")
    answer = engine_client(engine).post(*openai_image(data_url(playlist(trap.address))))
    assert answer.status >= 400
    trap.assert_untouched()


WORKING = 100 * 2**20
"""Bytes of a decoder that works on a large image."""


def test_decoding_ends_when_its_client_leaves(trap: Trap) -> None:
    server = trap.server

    def stopped_at_work() -> int | None:
        for decoder in [child.pid for pid in server.gateway_pids() for child in processes.children(pid)]:
            with contextlib.suppress(OSError):  # one that has done its work may have ended by now
                if processes.memory(decoder) > WORKING:
                    processes.stop(decoder)  # its order has no end
                    if processes.memory(decoder) > WORKING:
                        return decoder
        return None

    image = {"type": "image_url", "image_url": {"url": data_url(written(Image.new("RGB", (8192, 8192)), "PNG"))}}
    exchange = server.client.start("POST", "/v1/chat/completions", chat(*[image] * 8))
    decoder = wait_for(stopped_at_work, "a decoder works")
    exchange.hang_up()
    wait_for(lambda: not processes.alive(decoder), "the decoder has ended")
    server.assert_idle()
    assert server.client.post(*openai_image(data_url(written(Image.new("L", (8, 8)), "PNG")))).status == 200
