"""A model of a second lemonbus answers as it does there: every kind of model, with the engines of the tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from protocol.wire import form_data
from protocol.wire.form_data import FormPart
from tests.conftest import StartServer
from tests.fake_engines.llama_server import program
from tests.support import processes
from tests.support.audio import wav
from tests.support.clients.anthropic_client import anthropic_client
from tests.support.clients.deferred_packages import anthropic
from tests.support.clients.http_exchange import HttpExchange
from tests.support.clients.ollama_client import ollama_client
from tests.support.clients.openai_client import openai_client
from tests.support.images import TURBO, downloaded, png, safetensors
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.ports import free_port
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

MODELS = ("chat", "think", "tool", "vision", "embed", "rerank", "whisper", "kokoro", "loop")
PICTURES = "SD-Turbo"
PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
HI: Any = [{"role": "user", "content": "Hello"}]
SEEN: Any = [
    {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "image_url", "image_url": {"url": PIXEL}}]}
]
TOOL: Any = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"], "additionalProperties": False}
STRUCTURED: Any = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}
STILL = {"temperature": 0, "seed": 1, "max_tokens": 40}
SOUND = FormPart("file", wav(1.2), "a.wav")
LONG_TEXT = "Hello world. " * 300


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory, start_module_server: StartServer) -> LemonbusServer:
    folder = tmp_path_factory.mktemp("pictures")
    downloaded(folder, *TURBO, safetensors())
    names = [f"tiny-{name}" for name in MODELS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HOME", str(folder))
        return start_module_server(
            *names,
            "slow-whisper",
            "slow-kokoro",
            sdcpp_backend="system",
            sd_server=program(folder, "sd_server"),
            gateway_workers=1,
            ctx_size=65_536,
        )


@pytest.fixture(scope="module")
def server(other: LemonbusServer, start_module_server: StartServer) -> LemonbusServer:
    remotes = {"far": {"url": f"http://127.0.0.1:{other.port}/v1"}}
    found = start_module_server(remotes=remotes, gateway_workers=1)
    wait_for(lambda: f"far/{PICTURES}" in str(found.client.get("/v1/models").json()), "its models are listed")
    return found


def post(path: str, model: str, **fields: Any) -> Callable[[LemonbusServer, str], HttpExchange]:
    return lambda asked, prefix: asked.client.start("POST", path, {"model": f"{prefix}{model}", **fields})


def form(path: str, model: str, *parts: FormPart) -> Callable[[LemonbusServer, str], HttpExchange]:
    def start(asked: LemonbusServer, prefix: str) -> HttpExchange:
        body = form_data.encode([FormPart("model", f"{prefix}{model}".encode()), *parts])
        kind = {"Content-Type": f"multipart/form-data; boundary={form_data.boundary_from_body(body)}"}
        return asked.client.start("POST", path, body, kind)

    return start


CHAT, TEXT, RECORDING, EDITS = "/v1/chat/completions", "/v1/completions", "/v1/audio/transcriptions", "/v1/images/edits"
REQUESTS: dict[str, Callable[[LemonbusServer, str], HttpExchange]] = {
    "chat": post(CHAT, "extra.tiny-chat", messages=HI, **STILL),
    "chat, stream": post(CHAT, "extra.tiny-chat", messages=HI, stream=True, stream_options={"include_usage": True}, **STILL),
    "chat, no usage": post(CHAT, "extra.tiny-chat", messages=HI, stream=True, **STILL),
    "cut by its length": post(CHAT, "extra.tiny-loop", messages=HI, stream=True, **STILL),
    "logprobs": post(CHAT, "extra.tiny-chat", messages=HI, logprobs=True, top_logprobs=2, **STILL),
    "logprobs, stream": post(CHAT, "extra.tiny-chat", messages=HI, logprobs=True, top_logprobs=2, stream=True, **STILL),
    "several": post(CHAT, "extra.tiny-chat", messages=HI, n=2, **STILL),
    "reasoning": post(CHAT, "extra.tiny-think", messages=HI, **STILL),
    "reasoning, stream": post(CHAT, "extra.tiny-think", messages=HI, stream=True, **STILL),
    "tool": post(CHAT, "extra.tiny-tool", messages=HI, tools=[TOOL], **STILL),
    "tool, stream": post(CHAT, "extra.tiny-tool", messages=HI, tools=[TOOL], stream=True, **STILL),
    "schema": post(CHAT, "extra.tiny-chat", messages=HI, response_format=STRUCTURED, **STILL),
    "vision": post(CHAT, "extra.tiny-vision", messages=SEEN, **STILL),
    "text": post(TEXT, "extra.tiny-chat", prompt="Hello", **STILL),
    "text, stream": post(TEXT, "extra.tiny-chat", prompt="Hello", stream=True, **STILL),
    "several prompts": post(TEXT, "extra.tiny-chat", prompt=["Hello", "Hi"], **STILL),
    "anthropic": post("/v1/messages", "extra.tiny-tool", messages=HI, max_tokens=40, tools=[{"name": "get_weather", "input_schema": {"type": "object"}}], stream=True),
    "responses": post("/v1/responses", "extra.tiny-chat", input="Hello"),
    "ollama": post("/api/chat", "extra.tiny-chat", messages=HI, stream=False, options={"temperature": 0}),
    "vectors": post("/v1/embeddings", "extra.tiny-embed", input=["a lemon", "a lime"]),
    "vectors, base64": post("/v1/embeddings", "extra.tiny-embed", input="a lemon", encoding_format="base64"),
    "ranking": post("/v1/rerank", "extra.tiny-rerank", query="a", documents=["b", "a"]),
    "pictures": post("/v1/images/generations", PICTURES, prompt="a lemon", size="64x64", seed=1, steps=1),
    "edits": form(EDITS, PICTURES, FormPart("prompt", b"a lime"), FormPart("size", b"64x64"), FormPart("seed", b"1"), FormPart("image", png(64, 64), "a.png")),
    **{f"sound, {kind}": post("/v1/audio/speech", "extra.tiny-kokoro", input="Hello world.", voice="alloy", response_format=kind) for kind in ("pcm", "wav", "mp3", "opus", "flac", "aac")},
    "much sound": post("/v1/audio/speech", "extra.tiny-kokoro", input=LONG_TEXT, response_format="pcm"),
    **{f"recording, {kind}": form(RECORDING, "extra.tiny-whisper", SOUND, FormPart("response_format", kind.encode())) for kind in ("json", "text", "srt", "vtt", "verbose_json")},
    "recording, stream": form(RECORDING, "extra.tiny-whisper", SOUND, FormPart("stream", b"true")),
    "translation": form("/v1/audio/translations", "extra.tiny-whisper", SOUND),
}  # fmt: skip


RANDOM = {"id", "created", "created_at", "completed_at", "model", "timings", "system_fingerprint", "tokens_per_second"}
CACHED = {"prompt_tokens_details", "input_tokens_details", "cache_read_input_tokens", "input_tokens"}
"""Counts that depend on what was asked before."""


def comparable(answer: HttpExchange) -> Any:
    """Return an answer without what differs from one answer of the same model to the next."""
    kind = answer.headers["content-type"]
    if "event-stream" in kind:
        events = [each.data for each in answer.messages]
        assert events
        return [each if each == "[DONE]" else without_random(json.loads(each)) for each in events if not is_empty(each)]
    if "json" in kind:
        return without_random(answer.json())
    return len(answer.body) if "ogg" in kind else answer.body  # Ogg has a random number


def is_empty(event: str) -> bool:
    """Return whether an event adds nothing: a token without text, which a remote model leaves out."""
    return '"text":"","index":0,"logprobs":null,"finish_reason":null' in event


def without_random(value: Any) -> Any:
    if isinstance(value, list):
        return [without_random(each) for each in value]
    if not isinstance(value, dict):
        return value
    names = [name for name in value if name not in RANDOM | CACHED and "duration" not in name]
    return {name: without_random(value[name]) for name in names}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_model_answers_here_as_it_does_there(server: LemonbusServer, other: LemonbusServer, name: str) -> None:
    there, here = REQUESTS[name](other, "").finish(), REQUESTS[name](server, "far/").finish()
    assert (here.status, there.status) == (200, 200), (here, there)
    assert here.complete
    assert here.headers["content-type"] == there.headers["content-type"]
    assert comparable(here) == comparable(there)


def test_counts_of_speech_are_not_known_here(server: LemonbusServer) -> None:
    *_, done = (
        post("/v1/audio/speech", "extra.tiny-kokoro", input="Hello.", stream_format="sse")(server, "far/")
        .finish()
        .messages
    )
    assert done.json()["usage"]["input_tokens"] == 0


LONG: dict[str, Callable[[LemonbusServer, str], HttpExchange]] = {
    "text": post(CHAT, "extra.tiny-loop", messages=HI, stream=True, max_tokens=60_000),
    "whole text": post(CHAT, "extra.tiny-loop", messages=HI, max_tokens=60_000),
    "sound": post("/v1/audio/speech", "extra.slow-kokoro", input="Hello. " + "one two " * 200, response_format="pcm"),
    "recording": form(RECORDING, "extra.slow-whisper", FormPart("file", wav(600, rate=4_000, width=1), "a.wav")),
    "picture": post("/v1/images/generations", PICTURES, prompt="endless", size="64x64", steps=50),
}


@pytest.mark.parametrize("name", LONG)
def test_a_client_that_hangs_up_ends_the_request_there(
    server: LemonbusServer, other: LemonbusServer, name: str
) -> None:
    wait_for(lambda: server.state()["granted"] == other.state()["granted"] == 0, "nothing runs")
    request = LONG[name](server, "far/")
    wait_for(lambda: other.state()["granted"] == 1, "it has begun there")
    if name in ("text", "sound"):
        request.until(lambda it: it.body)
    request.hang_up()
    wait_for(lambda: server.state()["granted"] == other.state()["granted"] == 0, "it has ended on both")


@pytest.mark.parametrize("name", ["text", "sound"])
def test_an_engine_that_dies_there_does_not_look_like_an_end(
    server: LemonbusServer, other: LemonbusServer, name: str
) -> None:
    model = "extra.tiny-loop" if name == "text" else "extra.slow-kokoro"
    request = LONG[name](server, "far/")
    request.until(lambda it: it.body)
    processes.kill(other.engine_pid(model))
    request.finish()
    if name == "text":
        assert (request.done, request.error["model"]) == (False, f"far/{model}")
    else:
        assert not request.complete
    other.wait_loaded(model)


def test_two_servers_that_are_each_others_remote_refuse_a_request_that_goes_round(start_server: StartServer) -> None:
    ports = free_port(), free_port()
    one, two = (
        start_server(port=own, models={"round": {"url": f"http://127.0.0.1:{far}/v1", "served_name": "round"}})
        for own, far in (ports, ports[::-1])
    )
    for server in (one, two):
        answer = server.client.post(CHAT, {"model": "round", "messages": HI})
        assert (answer.status, answer.error["code"]) == (508, "loop_detected"), answer


# Published clients.


def test_the_openai_package(server: LemonbusServer) -> None:
    chat: Any = {"messages": HI, "temperature": 0, "seed": 1}
    with openai_client(server) as client:
        stream = client.chat.completions.create(model="far/extra.tiny-tool", tools=[TOOL], stream=True, **chat)
        deltas = [chunk.choices[0].delta for chunk in stream if chunk.choices]
        calls = [call.function for delta in deltas for call in delta.tool_calls or [] if call.function]
        assert calls[0].name == "get_weather"
        assert json.loads("".join(call.arguments or "" for call in calls)) == {"city": "Paris"}
        answer = client.chat.completions.create(
            model="far/extra.tiny-chat", response_format=STRUCTURED, max_tokens=40, **chat
        )
        assert (answer.choices[0].message.content or "").lstrip().startswith("{")
        blind = client.chat.completions.create(model="far/extra.tiny-vision", **chat)
        sees = client.chat.completions.create(model="far/extra.tiny-vision", **{**chat, "messages": SEEN})
        assert blind.usage
        assert sees.usage
        assert sees.usage.prompt_tokens > blind.usage.prompt_tokens + 10
        one, two = client.embeddings.create(model="far/extra.tiny-embed", input=["a lemon", "a lime"]).data
        assert len(one.embedding) == len(two.embedding) == 32
        assert client.audio.transcriptions.create(model="far/extra.tiny-whisper", file=("a.wav", SOUND.data)).text
        assert client.audio.speech.create(model="far/extra.tiny-kokoro", voice="alloy", input="Hello.").read()
        pictures = client.images.generate(model=f"far/{PICTURES}", prompt="a lemon", size="256x256")
        assert (pictures.data or [])[0].b64_json


def test_the_anthropic_package(server: LemonbusServer) -> None:
    tool: Any = {"name": "get_weather", "input_schema": TOOL["function"]["parameters"]}
    with anthropic_client(server) as client:
        with client.messages.stream(model="far/extra.tiny-tool", messages=HI, max_tokens=60, tools=[tool]) as stream:
            message = stream.get_final_message()
        assert message.stop_reason == "tool_use"
        (call,) = [block for block in message.content if block.type == "tool_use"]
        assert (call.name, call.input) == ("get_weather", {"city": "Paris"})
        assert message.usage.output_tokens > 1
        with client.messages.stream(model="far/extra.tiny-chat", messages=HI, max_tokens=60) as stream:
            assert "".join(stream.text_stream).strip() == CHAT_TEXT.strip()
        with pytest.raises(anthropic.BadRequestError, match="does not serve"):
            client.messages.count_tokens(model="far/extra.tiny-chat", messages=HI)


def test_the_ollama_package(server: LemonbusServer) -> None:
    client = ollama_client(server)
    try:
        *_, last = answers = list(client.chat(model="far/extra.tiny-tool", messages=HI, tools=[TOOL], stream=True))
        (call,) = [call.function for answer in answers for call in answer.message.tool_calls or []]
        assert (call.name, call.arguments, last.done_reason) == ("get_weather", {"city": "Paris"}, "stop")
        assert last.eval_count
        assert (
            client.generate(model="far/extra.tiny-chat", prompt="Hello").response or ""
        ).strip() == CHAT_TEXT.strip()
        assert len(client.embed(model="far/extra.tiny-embed", input=["a", "b"]).embeddings) == 2
        assert client.generate(model="far/extra.tiny-chat", prompt="Hello", format=SCHEMA).response
        seen = [{"role": "user", "content": "Hello", "images": [PIXEL.partition(",")[2]]}]
        assert (client.chat(model="far/extra.tiny-vision", messages=seen).prompt_eval_count or 0) > 16
        assert "far/extra.tiny-chat:latest" in {model.model for model in client.list().models}
        assert client.show("far/extra.tiny-vision").capabilities
    finally:
        client.close()
