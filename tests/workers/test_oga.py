"""The recipes of ONNX Runtime GenAI: command lines, requests, model folders, stop words and answers."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.config.settings import Settings
from protocol.failures import Code, LemonbusError
from protocol.models import installations
from protocol.models.installations import InstallationRecord
from protocol.models.recipes import IdleCheck, ModelSpec
from tests.support.accepted_share import accepted_share
from tests.support.models import onnx_protobuf
from tests.support.models.genai_models import CONTEXT, write_genai_model
from workers.backends.oga.backend import OgaBackend
from workers.backends.registry import BACKEND_CLASSES
from workers.engines.oga_server.stop_words import StopWordFilter
from workers.files import genai, onnx
from workers.files.errors import BrokenError

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
    backend.trained_context = 8192
    assert backend.command(4242)[1:3] == ["-m", "workers.engines.oga_server"]
    answer_text = {"--temp": "0.7", "--top-p": "0.95", "--top-k": "50", "--host": "127.0.0.1", "-a": "user.A"}
    assert words_of(backend) == {"-m": "/models/folder", "--port": "4242", "--ctx-size": "8192", **answer_text}
    assert words_of(made(recipe, threads=3))["-t"] == "3"


@pytest.mark.parametrize(
    ("asked", "made_for", "context"), [(4096, 0, 4096), (0, 0, 0), (0, 512, 512), (4096, 512, 512), (256, 512, 256)]
)
def test_the_context(asked: int, made_for: int, context: int) -> None:
    backend = made(ctx_size=asked)
    backend.trained_context = made_for
    assert backend.context == context
    assert words_of(backend)["--ctx-size"] == str(context)


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


@pytest.mark.parametrize(("recipe", "backend"), [("oga-npu", "npu"), ("ryzenai-llm", "hybrid")])
def test_a_program_that_is_not_there(recipe: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(LemonbusError, match="ryzenai-server was not found"):
        made(recipe, backend).check()


def test_a_library_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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
    }
    props = b'{"total_slots":1,"default_generation_settings":{"n_ctx":64},"build_info":"onnxruntime-genai 9"}'
    assert backend.facts(props) == (1, 64, "1.2.3")


def test_the_key_is_in_the_environment_and_nowhere_else() -> None:
    backend = made(key="secret")
    assert backend.environment({})["OGA_API_KEY"] == "secret"
    assert "secret" not in " ".join(backend.command(1))


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
        (b"\x1b[1;31m2026-11-21 11:19:53.499094291 [E:onnxruntime:, x.cc:677 Run] no\x1b[m", "warning", "no"),
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


# What is read of a folder.


def test_a_whole_folder(tmp_path: Path) -> None:
    folder = write_genai_model(tmp_path, "tiny-oga")
    assert genai.read(folder) == (sum(path.stat().st_size for path in folder.iterdir()), CONTEXT)


@pytest.mark.parametrize(
    ("config", "answer_text"),
    [
        (b"{", "is broken"),
        (b"[]", "is broken"),
        (b'{"a":"\xff"}', "is broken"),
        (b"[" * 100_000, "is broken"),
        (b"{}", "describes no model"),
        (b'{"model":{}}', "names no file"),
        (b'{"model":{"decoder":{"filename":"other.onnx"}}}', "other.onnx is missing"),
        (b'{"model":{"decoder":{"filename":"/etc/passwd"}}}', "outside of its folder"),
        (b'{"model":{"decoder":{"pipeline":[{"a":{"filename":"../x.onnx"}}]}}}', "outside of its folder"),
        (b'{"model":{"decoder":{"filename":"empty.onnx"}}}', "empty.onnx is empty"),
        (b'{"model":{"decoder":{"filename":"text.onnx"}}}', "not an ONNX file"),
    ],
)
def test_folders_that_are_no_model(tmp_path: Path, config: bytes, answer_text: str) -> None:
    (tmp_path / "genai_config.json").write_bytes(config)
    (tmp_path / "empty.onnx").touch()
    (tmp_path / "text.onnx").write_bytes(b"hello, hello, hello")
    with pytest.raises(BrokenError, match=answer_text) as raised:
        genai.read(tmp_path)
    assert str(tmp_path) not in str(raised.value)


def test_what_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").touch()
    with pytest.raises(BrokenError, match="not a folder"):
        genai.read(tmp_path / "x.gguf")
    with pytest.raises(FileNotFoundError):
        genai.read(tmp_path / "nothing")


def test_data_beside_a_model(tmp_path: Path) -> None:
    weight = onnx_protobuf.beside("w", [4, 8], "model.onnx.data", 128)
    (tmp_path / "model.onnx").write_bytes(onnx_protobuf.model([], [weight], [], []))
    (tmp_path / "genai_config.json").write_text('{"model":{"decoder":{"filename":"model.onnx"}}}')
    with pytest.raises(BrokenError, match=r"model\.onnx\.data is missing"):
        genai.read(tmp_path)
    (tmp_path / "model.onnx.data").write_bytes(b"0" * 100)
    with pytest.raises(BrokenError, match=r"model\.onnx\.data is truncated: 28 bytes"):
        genai.read(tmp_path)
    (tmp_path / "model.onnx.data").write_bytes(b"0" * 128)
    assert genai.read(tmp_path).context == 0
    outside = onnx_protobuf.beside("w", [4, 8], "../secret", 128)
    (tmp_path / "model.onnx").write_bytes(onnx_protobuf.model([], [outside], [], []))
    with pytest.raises(BrokenError, match="outside of its folder"):
        genai.read(tmp_path)


def test_a_description_that_is_no_description_of_anything(tmp_path: Path) -> None:
    with (tmp_path / "genai_config.json").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(BrokenError, match="too large"):
        genai.read(tmp_path)


def test_an_unused_dangling_link(tmp_path: Path) -> None:
    (tmp_path / "genai_config.json").write_text('{"model":{"decoder":{"filename":"a.bin"}}}')
    (tmp_path / "a.bin").write_bytes(b"four")
    (tmp_path / "old").symlink_to(tmp_path / "gone")
    assert genai.read(tmp_path).size == 4 + (tmp_path / "genai_config.json").stat().st_size


def test_a_file_of_very_many_very_small_fields_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.onnx"
    path.write_bytes(
        onnx_protobuf.model([], [onnx_protobuf.beside(f"w{n}", [2], "x.onnx", 8) for n in range(9)], [], [])
    )
    onnx.check(path)
    monkeypatch.setattr(onnx, "_MOST_FIELDS", 50)
    with pytest.raises(BrokenError, match="not an ONNX file"):
        onnx.check(path)


def test_a_model_that_was_cut_anywhere_is_not_whole(tmp_path: Path) -> None:
    whole = (write_genai_model(tmp_path, "tiny-oga") / "model.onnx").read_bytes()
    cut = tmp_path / "cut.onnx"
    for size in (1, 10, 50, len(whole) // 2, len(whole) - 1):
        cut.write_bytes(whole[:size])
        with pytest.raises(BrokenError):
            onnx.check(cut)


@accepted_share(0.05, noise=st.binary(max_size=3), offset=st.integers(0, 3000))
def test_any_file_is_read_or_refused(noise: bytes, offset: int) -> bool:
    data = bytearray(onnx_protobuf.model([], [onnx_protobuf.beside(f"w{n}", [2], "d", 8) for n in range(60)], [], []))
    data[offset : offset + len(noise)] = noise
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.onnx"
        path.write_bytes(data)
        (path.parent / "d").write_bytes(bytes(1024))
        try:
            onnx.check(path)
        except (BrokenError, OSError):
            return False
    return True


# Stop words.


@settings(max_examples=60)
@given(st.text("ab", max_size=30), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3), st.data())
def test_stop_words_are_found_however_the_text_is_cut(text: str, words: list[str], data: st.DataObject) -> None:
    stop_words, shown, at = StopWordFilter(words), "", 0
    while at < len(text) and not stop_words.found:
        size = data.draw(st.integers(1, 5))
        shown += stop_words.feed(text[at : at + size])
        at += size
    if not stop_words.found:
        shown += stop_words.rest()
    ends = [offset for word in words if (offset := text.find(word)) >= 0]
    if not ends:
        assert shown == text
    else:
        assert stop_words.found
        assert text.startswith(shown)
        assert not any(word in shown for word in words)
