"""The flm recipe: flags, command line, requests, log lines. Its stream: ``test_flm_responses.py``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from protocol.config.settings import Settings
from protocol.failures import Code, LemonbusError
from protocol.models.memory import HOST
from protocol.models.recipes import ModelSpec
from workers.backends.flm.backend import FlmBackend
from workers.backends.flm.responses import convert_flm_transcription
from workers.backends.flm.user_arguments import check_flm_args
from workers.backends.registry import ARGUMENT_CHECKS
from workers.worker.load_check import check_model

TAG = "llama3.2:1b"


def made(kind: str = "llm", tag: str = TAG, ctx_size: int = 4096, **options: Any) -> FlmBackend:
    spec = ModelSpec("M", tag, "flm", "npu", kind, tag, options={"ctx_size": ctx_size, **options}, size=1000)
    return FlmBackend(spec, Settings(api_key="secret"))


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "flm"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return path


# what is started


@pytest.mark.parametrize(
    "args",
    ["--port 1", "--po 1", "--port=1", "-p1", "-p 1", "--ctx_len 9", "-c 9", "--host ::", "--embed 1", "-a 1", "--hf", "'"],
)  # fmt: skip
def test_flags_that_lemonbus_sets(args: str) -> None:
    with pytest.raises(LemonbusError) as raised:
        check_flm_args(f"--pmode turbo {args}")
    assert (raised.value.failure.code, raised.value.failure.param) == (Code.INVALID_REQUEST, "flm_args")
    with pytest.raises(LemonbusError):
        ARGUMENT_CHECKS["flm_args"](args)


@pytest.mark.parametrize("args", ["", "--pmode turbo", "--q-len 4 -s 20", "--cors 1 --preemption 1", "-r 1"])
def test_flags_that_users_may_set(args: str) -> None:
    assert check_flm_args(args) == args.split()


def test_the_tag_is_not_the_users() -> None:
    with pytest.raises(LemonbusError, match="must begin with a flag"):
        made(flm_args="qwen3:4b")


def test_the_command_line(program: Path) -> None:
    assert made().command(5) == [
        *(str(program), "serve", TAG, "--ctx-len", "4096", "--port", "5", "--host", "127.0.0.1", "--quiet"),
        *("--cors", "0", "--socket", "65535"),
    ]
    assert "--ctx-len" not in made(ctx_size=0).command(5)
    assert made(ctx_size=3).command(5)[4] == "512", "flm makes that of less"
    assert made(flm_args="--cors 1 -s 9").command(5)[-5:] == ["--quiet", "--cors", "1", "-s", "9"]
    embedding = made("embedding", "embed-gemma:300m").command(5)
    assert embedding[1:4] == ["serve", "--embed", "1"]
    assert "embed-gemma:300m" not in embedding
    assert made("audio", "whisper-v3:turbo").command(5)[1:4] == ["serve", "--asr", "1"]


def test_the_environment_and_the_key() -> None:
    inherited = {"PATH": "/bin", "FLM_MODEL_PATH": "/m", "FLM_SERVE_PORT": "1"}
    secrets = {"HF_TOKEN": "t", "LEMONBUS_API_KEY": "k", "PYTHONPATH": "p"}
    assert made().environment({**inherited, **secrets}) == {
        "PATH": "/dev/null",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "FLM_MODEL_PATH": "/m",
    }
    assert made().key == "", "flm asks for none, and prints what it is sent"


@pytest.mark.parametrize(
    ("kind", "tag", "why", "code"),
    [
        ("embedding", TAG, "embed-gemma:300m", Code.UNSUPPORTED),
        ("audio", TAG, "whisper-v3:turbo", Code.UNSUPPORTED),
        ("llm", TAG, "not found on PATH", Code.BACKEND_NOT_INSTALLED),
    ],
)
def test_errors_found_before_the_start(
    kind: str, tag: str, why: str, code: Code, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LemonbusError, match=why) as raised:
        made(kind, tag).check()
    assert raised.value.failure.code == code


def test_no_file_is_looked_at(program: Path) -> None:
    backend = made()
    assert program.exists()
    report, facts = check_model(backend.spec, backend)
    assert (report.estimate.need(), facts.context) == ({HOST: 1200}, 0)


@pytest.mark.parametrize(("context", "seconds"), [(512, 60.0), (4096, 81.92), (0, 655.36), (-1, 655.36)])
def test_it_may_read_the_longest_prompt_in_silence(context: int, seconds: float) -> None:
    assert made(ctx_size=context).silence == pytest.approx(seconds)


# what it is asked


def asked(endpoint: str, body: dict[str, Any], kind: str = "llm") -> tuple[Any, dict[str, Any]]:
    request = made(kind).request(endpoint, "", json.dumps(body).encode(), False)
    return request, json.loads(request.body)


def test_a_request_names_the_tag_and_wants_a_stream() -> None:
    body: dict[str, Any] = {
        "model": "M",
        "messages": [],
        "max_tokens": None,
        "top_p": None,
        "stream_options": {"include_usage": True},
    }
    request, sent = asked("chat/completions", {**body, "repeat_penalty": 1.1, "max_completion_tokens": 7})
    assert sent == {"model": TAG, "messages": [], "stream": True, "repetition_penalty": 1.1, "max_tokens": 7}
    assert (request.path, request.streamed, request.usage) == ("/v1/chat/completions", True, True)
    assert asked("chat/completions", {"messages": [], "max_tokens": -1})[1].keys() == {"model", "messages", "stream"}
    assert asked("completions", {"prompt": ["a"]})[1]["prompt"] == "a"
    assert not asked("completions", {"prompt": "a"})[0].usage
    assert asked("embeddings", {"input": "a", "encoding_format": "base64"}, "embedding")[1] == {
        "input": "a",
        "model": TAG,
    }


def test_sampling_defaults_are_merged() -> None:
    backend = made()
    backend.sampling = {"temperature": 0.5, "top_k": 7, "max_length": 99, "min_length": 1}
    sent = json.loads(backend.request("chat/completions", "", b'{"messages":[],"top_k":3}', False).body)
    assert sent == {"messages": [], "model": TAG, "stream": True, "temperature": 0.5, "top_k": 3, "max_tokens": 99}


@pytest.mark.parametrize(
    ("endpoint", "body", "code"),
    [
        ("chat/completions", b'{"messages":[],"n":2}', Code.INVALID_REQUEST),
        ("completions", b'{"prompt":["a","b"]}', Code.INVALID_REQUEST),
        ("completions", b'{"prompt":[1]}', Code.INVALID_REQUEST),
        ("completions", b"{}", Code.INVALID_REQUEST),
        ("completions", b"[]", Code.INVALID_JSON),
        ("completions", b'{"prompt":"a","stream_options":7}', Code.INVALID_JSON),
        ("embeddings", b'{"input":"a"}', Code.UNSUPPORTED),
        ("slots", b"{}", Code.UNSUPPORTED),
    ],
)
def test_unsupported_requests(endpoint: str, body: bytes, code: Code) -> None:
    with pytest.raises(LemonbusError) as raised:
        made().request(endpoint, "", body, False)
    assert raised.value.failure.code == code


def test_props_and_version() -> None:
    assert made().facts(b'{"version":"0.9.35"}')[:3] == (1, 4096, "0.9.35")
    assert made().processing(b'{"npu_available":false,"active_requests":1}') == 1
    for question in (made().facts, made().processing):
        with pytest.raises(ValueError, match="array"):
            question(b"[]")


# what it answers


def test_transcriptions() -> None:
    assert json.loads(convert_flm_transcription(b'{"model":"x","text":" hello "}'))["text"] == "hello"
    for answer in (b"null", b"{}"):
        with pytest.raises(ValueError):
            convert_flm_transcription(answer)
    with pytest.raises(LemonbusError, match="not a form"):
        made("audio", "whisper-v3:turbo").request("audio/transcriptions", "", b"{}", False)
    assert made("audio", "whisper-v3:turbo").warm_up() is None


# what it prints


def test_prompts_are_for_trace_alone() -> None:
    backend = made()
    assert backend.parse(b"terminate called after throwing") == ("debug", "terminate called after throwing")
    assert backend.parse(b"[ERROR]  Failed to load model: x") == ("error", "Failed to load model: x")
    assert backend.parse("[⬇️ ]  Incoming Request: POST".encode()) == ("trace", "[⬇️ ]  Incoming Request: POST")
    assert backend.parse(b'    "content": "what I wrote"') == ("trace", '    "content": "what I wrote"')
    assert backend.parse(b"[FLM]  Start generating...") == ("debug", "Start generating...")
    assert backend.parse(b"[Warning]  No embedding model loaded") == ("warning", "No embedding model loaded")
