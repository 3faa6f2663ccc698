"""The recipe kokoro: what it checks before a load, its command line, its requests, and the voices of a folder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from protocol.config.settings import Settings
from protocol.failures import Code, LemonbusError
from protocol.models import repository_files
from protocol.models.recipes import ModelSpec
from tests.support.models.kokoro_models import write_kokoro_model
from workers.backends.kokoro import backend as kokoro
from workers.backends.kokoro.backend import KokoroBackend
from workers.backends.kokoro.spoken_input import unspoken
from workers.backends.kokoro.voice_names import VoiceError, voices_of
from workers.backends.recipe import Identity
from workers.backends.registry import identify
from workers.files.errors import BrokenError
from workers.files.voices import Voices


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_kokoro_model(tmp_path)


def backend_of(model: Path, **options: Any) -> KokoroBackend:
    return KokoroBackend(ModelSpec("m", "c", "kokoro", "cpu", "tts", str(model), options=options), Settings())


def test_the_command_line_has_the_dictionary_and_espeak(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kokoro.shutil, "which", {"espeak-ng": "/opt/espeak-ng"}.get)
    words = backend_of(model, threads=2).command(1234)
    assert words[1:3] == ["-m", "workers.engine_servers.kokoro_server"]
    options = dict(zip(words[3::2], words[4::2], strict=True))
    assert options == {
        "-m": str(model),
        "--host": "127.0.0.1",
        "--port": "1234",
        "-a": "m",
        "--lexicon": str(model.parent / "lexicon"),
        "--espeak": "/opt/espeak-ng",
        "-t": "2",
    }


def test_its_key_is_in_its_environment_only(model: Path) -> None:
    backend = backend_of(model)
    environment = backend.environment({"PATH": "/bin", "KOKORO_API_KEY": "other"})
    assert environment["KOKORO_API_KEY"] == backend.key
    assert environment["PATH"] == "/dev/null"
    assert backend.key not in backend.command(1)


def test_without_any_dictionary_the_load_says_what_to_install(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kokoro.shutil, "which", lambda _: None)
    monkeypatch.setattr(kokoro.importlib.util, "find_spec", lambda name: None if name == "misaki" else name)
    backend_of(model).check()
    (model.parent / "lexicon").rename(model.parent / "other")
    with pytest.raises(LemonbusError, match="apt-get install espeak-ng") as caught:
        backend_of(model).check()
    assert caught.value.failure.code == Code.BACKEND_NOT_INSTALLED


def test_the_files_are_examined(model: Path) -> None:
    facts = backend_of(model).examine()
    assert facts.size == model.stat().st_size + 2 * 510 * 256 * 4
    assert backend_of(model).memory().need()["host"] > facts.size
    os.truncate(model, 100)
    with pytest.raises(BrokenError, match="truncated"):
        backend_of(model).examine()


def test_a_model_without_voices_is_broken(model: Path) -> None:
    (model.parent / "voices").rename(model.parent / "other")
    with pytest.raises(BrokenError, match="no voices"):
        backend_of(model).examine()


def test_a_request_is_passed_on_as_a_stream_of_bytes(model: Path) -> None:
    body = json.dumps({"input": "hi", "voice": "onyx"}).encode()
    request = backend_of(model).request("audio/speech", "", body, stream=True)
    assert (request.method, request.path, request.body, request.streamed) == ("POST", "/v1/audio/speech", body, True)
    assert request.warning == ""
    warned = backend_of(model).request("audio/speech", "", b'{"input":"hi","instructions":"sing"}', stream=True)
    assert "instructions" in warned.warning


@pytest.mark.parametrize(
    ("endpoint", "body", "code"),
    [
        ("audio/speech", b'{"input":"hi","voice":"bob"}', Code.INVALID_REQUEST),
        ("audio/speech", b"[", Code.INVALID_JSON),
        ("chat/completions", b"{}", Code.UNSUPPORTED),
    ],
)
def test_what_it_cannot_do_is_refused(model: Path, endpoint: str, body: bytes, code: Code) -> None:
    with pytest.raises(LemonbusError) as caught:
        backend_of(model).request(endpoint, "", body, stream=True)
    assert caught.value.failure.code == code


def test_busy_slots(model: Path) -> None:
    assert backend_of(model).processing(b'[{"id":0,"is_processing":true}]') == 1
    with pytest.raises(ValueError, match="truncated"):
        backend_of(model).processing(b"")


@pytest.mark.parametrize(
    ("name", "head", "found"),
    [
        ("kokoro-v1.0.int8.onnx", b"\x08\x08", Identity("kokoro", ("tts",))),
        ("My-Kokoro.ONNX", b"\x08\x08", Identity("kokoro", ("tts",))),
        ("kokoro.onnx", b"PK", None),
        ("model.onnx", b"\x08\x08", None),
    ],
)
def test_a_file_is_recognized(name: str, head: bytes, found: Identity | None) -> None:
    assert identify(name, head) == found


# Voices.


def vectors(value: float, count: int = 3) -> Any:
    return np.full((count, 1, 256), value, "<f4")


def test_voices_beside_the_model_or_beside_its_folder(tmp_path: Path) -> None:
    (tmp_path / "onnx").mkdir()
    (tmp_path / "voices").mkdir()
    (tmp_path / "voices" / "b.bin").write_bytes(vectors(2).tobytes())
    (tmp_path / "voices" / "not a name!.bin").write_bytes(b"")
    voices = Voices(tmp_path / "onnx" / "model.onnx")
    assert voices.names == ["b"]
    assert voices.read("b").shape == (3, 256)
    assert voices.size == 3 * 256 * 4


def test_voices_of_an_archive(tmp_path: Path) -> None:
    with (tmp_path / "voices-v1.0.bin").open("wb") as file:
        np.savez(file, af=vectors(1), am=vectors(2))
    voices = Voices(tmp_path / "m.onnx")
    assert voices.names == ["af", "am"]
    assert voices.read("am")[0, 0] == 2


@pytest.mark.parametrize("data", [b"", b"abc", b"\0" * 4, np.full(256, np.nan, "<f4").tobytes(), b"\0" * (5 << 20)])
def test_a_broken_voice_is_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "voices").mkdir()
    (tmp_path / "voices" / "a.bin").write_bytes(data)
    with pytest.raises((BrokenError, ValueError), match="voice"):
        Voices(tmp_path / "m.onnx").read("a")


def test_a_pickle_is_never_read(tmp_path: Path) -> None:
    with (tmp_path / "voices.npz").open("wb") as file:
        np.savez(file, a=np.array([{}], object))
    with pytest.raises(BrokenError, match="broken voice"):
        Voices(tmp_path / "m.onnx").read("a")
    (tmp_path / "voices.npz").write_bytes(b"\x80\x04.")
    with pytest.raises(BrokenError, match="not an archive"):
        Voices(tmp_path / "m.onnx")


@pytest.mark.parametrize(
    ("text", "language", "found"),
    [
        ("café, naïve 🎉❤️ ½ µm №", "a", ""),
        ("", "a", ""),
        ("🎉", "a", ""),
        ("Hello Привет", "a", "letters of the script Cyrillic, which are left out: the voice speaks American English"),
        (
            "123 你好 こんにちは",
            "b",
            "script Chinese and Japanese, which are left out: the voice speaks British English",
        ),
        ("नमस्ते ok", "h", ""),
        ("नमस्ते ok", "f", "script Devanagari"),
        ("नमस्ते ok", "x", "the voice speaks another language"),
        ("<speak>Hi<break time='1s'/></speak>", "a", "tags in `input`, such as those of SSML, have no effect"),
        ("1 < 2 > 0, a<b and c>d", "a", ""),
    ],
)
def test_what_is_left_out_is_said(text: str, language: str, found: str) -> None:
    warnings = "; ".join(unspoken(text, language))
    assert found in warnings if found else not warnings
    assert warnings.isascii()


@pytest.mark.parametrize(
    ("text", "name"),
    [("Привет!", "Cyrillic"), ("你好", "Chinese"), ("שלום", "Hebrew"), ("<p>مرحبا</p>", "Arabic")],
)
def test_a_text_of_which_nothing_is_spoken_is_refused(model: Path, text: str, name: str) -> None:
    with pytest.raises(LemonbusError, match=name) as caught:
        backend_of(model).request("audio/speech", "", json.dumps({"input": text}).encode(), stream=True)
    assert (caught.value.failure.http_status, caught.value.failure.param) == (400, "input")


def test_several_warnings_are_one(model: Path) -> None:
    body = json.dumps({"input": "hi Привет", "instructions": "sing"}).encode()
    warning = backend_of(model).request("audio/speech", "", body, stream=True).warning
    assert "Cyrillic" in warning
    assert "instructions" in warning


KNOWN = ["af_heart", "am_onyx", "bf_emma"]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("", [("af_heart", 1.0)]),
        ("am_onyx", [("am_onyx", 1.0)]),
        ("AM_ONYX", [("am_onyx", 1.0)]),
        ("onyx", [("am_onyx", 1.0)]),
        ("alloy", [("af_heart", 1.0)]),
        ("af_heart(3)+am_onyx", [("af_heart", 0.75), ("am_onyx", 0.25)]),
        ("af_heart + af_heart", [("af_heart", 1.0)]),
        ("af_heart(0)+am_onyx(0.5)", [("am_onyx", 1.0)]),
    ],
)
def test_names_of_voices(given: str, found: list[tuple[str, float]]) -> None:
    assert voices_of(given, KNOWN) == found


@pytest.mark.parametrize("given", ["bob", "+", "af_heart(0)", "af_heart(x)", "+".join(KNOWN * 3), "af_heart(1)(2)"])
def test_names_without_a_voice(given: str) -> None:
    with pytest.raises(VoiceError, match="voice"):
        voices_of(given, KNOWN)


# Files of a repository.

REPOSITORY = [
    *("README.md", "config.json", "onnx/model.onnx", "onnx/model_fp16.onnx", "onnx/model_quantized.onnx"),
    *("onnx/model_q8f16.onnx", "voices/af.bin", "voices/af_heart.bin"),
]


@pytest.mark.parametrize(
    ("variant", "model_file"),
    [
        ("", "onnx/model_quantized.onnx"),
        ("fp16", "onnx/model_fp16.onnx"),
        ("onnx/model.onnx", "onnx/model.onnx"),
        ("model_q8f16.onnx", "onnx/model_q8f16.onnx"),
    ],
)
def test_a_repository_with_voices_is_a_model_and_all_of_them(variant: str, model_file: str) -> None:
    chosen = repository_files.choose_files(REPOSITORY, variant)
    assert chosen == [model_file, "voices/af.bin", "voices/af_heart.bin"]


def test_other_repositories_are_read_as_before() -> None:
    assert repository_files.choose_files(["kokoro-v1.0.int8.onnx", "voices-v1.0.bin"], "") == [
        *("kokoro-v1.0.int8.onnx", "voices-v1.0.bin")
    ]
    assert repository_files.choose_files(["onnx/model.onnx"], "") == []
    assert repository_files.choose_files(["a.gguf", "voices/a.bin"], "") == ["a.gguf"]
    assert repository_files.choose_files(REPOSITORY, "int4") == []
