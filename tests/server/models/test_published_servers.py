"""Servers of other makers under ``command``: llama.cpp's own from the wheel xllamacpp, and the proxy of litellm.

litellm's dependencies take half a gigabyte, so it is not installed for the tests. Its test is skipped unless the variable LITELLM names
the program, or it is on PATH.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import StartServer
from tests.support.models.tiny_models import tiny_models
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

HI = [{"role": "user", "content": "Hi"}]
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
SPOKEN = "one two three four five"
LITELLM_MODELS = f"""
model_list:
  - model_name: mocked
    litellm_params:
      model: openai/mocked
      api_key: none
      mock_response: {SPOKEN}
"""


def llama_section(model: str, *more: str, **keys: Any) -> dict[str, Any]:
    words = [sys.executable, "-c", LLAMA_SERVER, "{port}", str(tiny_models() / "models" / f"{model}.gguf"), *more]
    return {"command": words, "slots": 2, "env": {"GOMP_SPINCOUNT": "300"}, **keys}


@pytest.fixture(scope="module")
def server(start_module_server: StartServer) -> LemonbusServer:
    models = {
        "chat": llama_section("tiny-loop"),
        "vectors": llama_section("tiny-embed", "embedding", type="embedding"),
    }
    return start_module_server("tiny-loop", "tiny-embed", models=models, gateway_workers=1)


def test_llama_cpps_own_server_answers_as_under_its_own_recipe(server: LemonbusServer) -> None:
    asked = {"messages": HI, "temperature": 0, "max_tokens": 8, "seed": 1}
    own, other = (
        server.client.post("/v1/chat/completions", {"model": model, **asked}).json()
        for model in ("extra.tiny-loop", "chat")
    )
    assert other["choices"][0]["message"]["content"] == own["choices"][0]["message"]["content"]
    assert other["usage"]["completion_tokens"] == own["usage"]["completion_tokens"] == 8
    stream = server.client.start_chat(
        "chat", stream=True, **{name: asked[name] for name in ("temperature", "max_tokens")}
    )
    stream.finish()
    assert (stream.done, stream.text) == (True, own["choices"][0]["message"]["content"])


def test_its_vectors_are_the_same(server: LemonbusServer) -> None:
    own, other = (
        server.client.post("/v1/embeddings", {"model": model, "input": ["one", "two"]}).json()["data"]
        for model in ("extra.tiny-embed", "vectors")
    )
    assert [each["embedding"] for each in other] == [pytest.approx(each["embedding"], abs=1e-4) for each in own]


def test_a_client_that_hangs_up_frees_its_slots(server: LemonbusServer) -> None:
    streams = [server.client.start_chat("chat", stream=True, max_tokens=60_000) for _ in range(2)]
    for stream in streams:
        stream.until(lambda it: len(it.events) > 5)
    for stream in streams:
        stream.hang_up()
    answer = server.client.chat("chat", max_tokens=3)
    assert answer.status == 200
    assert wait_for(lambda: server.client.chat("chat", max_tokens=3).status == 200, "it serves on")


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
