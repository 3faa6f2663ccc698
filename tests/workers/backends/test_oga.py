"""The recipes of ONNX Runtime GenAI: command lines, environments, requests and the lines of their engines."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from protocol.config.settings import Settings
from protocol.failures import Code, LemonbusError
from protocol.models import installations
from protocol.models.installations import InstallationRecord
from protocol.models.memory import HOST
from protocol.models.recipes import IdleCheck, ModelSpec
from workers.backends.engine_facts import ModelFacts
from workers.backends.oga.backend import PROCESS_BYTES, OgaBackend
from workers.backends.registry import BACKEND_CLASSES
from workers.stream.token_timing import EngineSpan

FAMILY = ("oga-cpu", "oga-hybrid", "oga-npu", "ryzenai-llm")


def made(
    recipe: str = "oga-cpu", backend: str = "cpu", home: str = "/home", key: str = "", **options: Any
) -> OgaBackend:
    spec = ModelSpec("user.A", "x", recipe, backend, "llm", "/models/folder", options=options)
    backend_ = BACKEND_CLASSES[recipe](spec, Settings(cache_dir=home, api_key=key, threads=0, ctx_size=4096))
    assert isinstance(backend_, OgaBackend)
    return backend_


def words_of(backend: OgaBackend) -> dict[str, str]:
    words = backend.command(4242)
    start = words.index("/models/folder") - 1
    return dict(zip(words[start::2], words[start + 1 :: 2], strict=True))


@pytest.fixture
def ryzenai(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of that name on PATH."""
    program = tmp_path / "ryzenai-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return program


@pytest.mark.parametrize("recipe", FAMILY)
def test_the_command_line_of_our_server(recipe: str) -> None:
    backend = made(recipe, ctx_size=0)
    backend.model_facts = ModelFacts(0, 8192)
    assert backend.command(4242)[1:3] == ["-m", "workers.engine_servers.oga_server"]
    answer_text = {"--temp": "0.7", "--top-p": "0.95", "--top-k": "50", "--host": "127.0.0.1", "-a": "user.A"}
    assert words_of(backend) == {"-m": "/models/folder", "--port": "4242", "--ctx-size": "8192", **answer_text}
    assert words_of(made(recipe, threads=3))["-t"] == "3"


@pytest.mark.parametrize(
    ("asked", "made_for", "context"),
    [(4096, 0, 4096), (0, 0, 0), (-1, 512, 512), (0, 512, 512), (4096, 512, 512), (256, 512, 256)],
)
def test_the_context(asked: int, made_for: int, context: int) -> None:
    backend = made(ctx_size=asked)
    backend.model_facts = ModelFacts(0, made_for)
    assert backend.context == context
    assert words_of(backend)["--ctx-size"] == str(context)


def test_the_memory() -> None:
    given, chosen = made(ctx_size=1024), made(ctx_size=-1)
    for each in (given, chosen):
        each.model_facts = ModelFacts(10_000, 2048, token_bytes=100)
    assert given.memory().need() == {HOST: 10_000 + PROCESS_BYTES + 102_400}
    assert given.memory().places[HOST].lazy == 102_400
    assert (chosen.memory().context, chosen.memory().largest_context) == (0, 2048)
    assert chosen.memory().need(1024) == given.memory().need()


@pytest.mark.parametrize(
    ("recipe", "backend"),
    [("oga-hybrid", "hybrid"), ("oga-npu", "npu"), ("ryzenai-llm", "npu"), ("ryzenai-llm", "hybrid")],
)
def test_the_command_line_of_ryzenai_server(ryzenai: Path, recipe: str, backend: str) -> None:
    theirs = made(recipe, backend, key="secret", ctx_size=2048)
    theirs.check()
    assert theirs.command(4242) == [str(ryzenai), "-m", "/models/folder", "--port", "4242", "--ctx-size", "2048"]
    assert "secret" not in str(theirs.environment({})), "it has no use for a key"
    assert (theirs.program, theirs.alias) == ("ryzenai-server", "folder")
    assert theirs.about().path == "/health"
    assert theirs.facts(b'{"status":"ok","max_context_length":1024}')[:2] == (1, 1024)
    assert theirs.facts(b'{"status":"ok"}')[:2] == (1, 2048)
    assert theirs.idle_check("completions") == IdleCheck.ANSWER


def test_requests_and_answers_of_ryzenai_server(ryzenai: Path) -> None:
    assert ryzenai.is_file()
    theirs = made("oga-npu", "npu")
    theirs.sampling = {"temperature": 0.5, "max_length": 9}
    whole = theirs.request("completions", "", b'{"model":"user.A","prompt":"x"}', stream=False)
    asked = {"model": "folder", "prompt": "x", "temperature": 0.5, "max_tokens": 9, "stream": False}
    assert (json.loads(whole.body), whole.streamed, whole.path) == (asked, False, "/v1/completions")
    stream = theirs.request("chat/completions", "", b'{"messages":[]}', stream=True)
    assert (json.loads(stream.body)["stream"], stream.streamed) == (True, True)
    assert stream.translate is not None
    answer_text = stream.translate(
        b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}\n\n'
    )
    assert b'data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":"Hi"}}]' in answer_text


def test_ryzenai_server_gives_one_answer(ryzenai: Path) -> None:
    assert ryzenai.is_file()
    theirs = made("oga-npu", "npu")
    with pytest.raises(LemonbusError, match="one answer") as raised:
        theirs.request("chat/completions", "", b'{"messages":[],"n":2}', stream=False)
    assert raised.value.failure.param == "n"
    assert theirs.request("chat/completions", "", b'{"messages":[],"n":1}', stream=False).choices == 1


@pytest.mark.parametrize(("recipe", "backend"), [("oga-npu", "npu"), ("ryzenai-llm", "hybrid")])
def test_a_missing_program(recipe: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(LemonbusError, match="ryzenai-server was not found"):
        made(recipe, backend).check()


def test_a_missing_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(LemonbusError, match="lemonbus backends install oga-npu:cpu"):
        made("oga-npu", "cpu", str(tmp_path)).check()


@pytest.mark.parametrize("recipe", FAMILY)
def test_an_installation_is_shared_by_the_family(recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    folder = installations.backend_folder(str(tmp_path), "oga-cpu", "cpu") / "1-a"
    folder.mkdir(parents=True)
    (folder / installations.RECORD_FILE).write_bytes(
        msgspec.json.encode(InstallationRecord("oga-cpu", "cpu", "1.2.3", "a"))
    )
    backend = made(recipe, "cpu", str(tmp_path))
    backend.check()
    environment = backend.environment(
        {"PYTHONPATH": "/packages", "OGA_API_KEY": "theirs", "HF_TOKEN": "t", "HOME": "/h"}
    )
    assert environment == {
        "PYTHONPATH": f"/packages{os.pathsep}{folder / installations.SITE_FOLDER}",
        "HOME": "/h",
        "OGA_API_KEY": backend.key,
        "GOMP_SPINCOUNT": "300",
        "PATH": "/dev/null",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    props = b'{"total_slots":1,"default_generation_settings":{"n_ctx":64},"build_info":"onnxruntime-genai 9"}'
    assert backend.facts(props)[:3] == (1, 64, "1.2.3")


def test_the_key_is_in_the_environment_and_nowhere_else() -> None:
    backend = made(key="secret")
    assert backend.environment({})["OGA_API_KEY"] == backend.key != "secret"
    assert backend.key not in " ".join(backend.command(1))
    assert made(key="secret").key != backend.key, "each start has another one"


def test_completions_are_computed_one_after_the_other_in_one_slot() -> None:
    request = made().request("completions", "", b'{"prompt":["a","b"],"n":3,"logprobs":1}', stream=False)
    assert (request.prompts, request.choices, request.weight, request.streamed) == (2, 3, 1, True)
    chat = made().request("chat/completions", "", b'{"messages":[],"logprobs":true}', stream=False)
    assert chat.streamed, "its streams leave out no log probabilities"
    assert EngineSpan(2.0, 3.0).followed_by(EngineSpan(2.0, 4.0)) == (2.0, 7.0)


def test_unknown_backends_and_endpoints_are_refused() -> None:
    with pytest.raises(LemonbusError) as raised:
        made("oga-npu", "vulkan")
    assert raised.value.failure.param == "oga-npu_backend"
    with pytest.raises(LemonbusError) as raised:
        made().request("embeddings", "", b"{}", stream=False)
    assert raised.value.failure.code == Code.UNSUPPORTED


@pytest.mark.parametrize(
    ("line", "level", "text"),
    [
        (b"2026-11-21 11:19:53.499094291 [E:onnxruntime:, x.cc:677 Run] no", "warning", "no"),
        (b"2026-11-21 11:19:53.49 [W:onnxruntime:genai, x.cc:1 F] slow", "debug", "slow"),
        (b"oga-server: cannot load the model", "debug", "oga-server: cannot load the model"),
    ],
)
def test_lines_of_the_library(line: bytes, level: str, text: str) -> None:
    assert made().parse(line) == (level, text)


def test_what_ryzenai_server_prints_of_requests_is_for_trace_alone(ryzenai: Path) -> None:
    assert ryzenai.is_file()
    theirs = made("oga-npu", "npu")
    assert theirs.parse(b"[Server] Loading") == ("debug", "[Server] Loading")
    theirs.request("completions", "", b'{"prompt":"x"}', stream=False)
    assert theirs.parse(b"[Server] x") == ("trace", "[Server] x")
