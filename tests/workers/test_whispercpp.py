"""The whispercpp recipe: arguments, command line, requests, answers; and what is read of a model's file."""

from __future__ import annotations

import contextlib
import json
import os
import struct
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import forms, installed
from protocol.failures import Code, LemonbusError
from protocol.forms import Part
from protocol.installed import Record
from protocol.recipes import ModelSpec
from protocol.settings import Settings
from protocol.transcripts import Segment, Transcript, Word
from tests.house.models import tiny_models
from workers import ggml, heard
from workers.backends import ARGUMENTS
from workers.backends.whispercpp import WhisperCpp
from workers.broken import BrokenError
from workers.engines.flags import FlagError
from workers.engines.whisper_flags import FLAGS, read, wishes

MODELS = tiny_models() / "models"
FORM = forms.written([Part("model", b"m"), Part("language", b"de"), Part("file", b"RIFF", "a.wav")])


def made(backend: str = "cpu", home: str = "/home", key: str = "", kind: str = "audio", **options: Any) -> WhisperCpp:
    spec = ModelSpec("user.x", "x", "whispercpp", backend, kind, "/models/x.bin", options=options)
    return WhisperCpp(spec, Settings(cache_dir=home, api_key=key))


def pair(command: list[str], flag: str) -> str:
    return command[command.index(flag) + 1]


def test_the_command_line() -> None:
    command = made(threads=3, whispercpp_args="--convert -bs 5 -l de").command(5)
    assert command[1:3] == ["-m", "workers.engines.whisper_server"]
    assert command[3:5] == ["-m", "/models/x.bin"]
    assert (pair(command, "--host"), pair(command, "--port"), pair(command, "-t")) == ("127.0.0.1", "5", "3")
    assert command.index("auto") < command.index("--convert"), "the user's word counts more"
    assert "-t" not in made().command(5)
    assert (made().slots, made().program, made().alias) == (1, "whisper-server", "user.x")


@pytest.mark.parametrize("flag", ["-m", "--model", "--port", "--host", "--port=1", "--inference_path"])
def test_flags_that_are_ours(flag: str) -> None:
    for question in (lambda: made(whispercpp_args=f"{flag} 1"), lambda: ARGUMENTS["whispercpp_args"](f"{flag} 1")):
        with pytest.raises(LemonbusError) as told:
            question()
        assert (told.value.failure.code, told.value.failure.param) == (Code.INVALID_REQUEST, "whispercpp_args")
        assert flag.partition("=")[0].replace("_", "-") in told.value.failure.message


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ("--vad", "unknown argument --vad"),
        ("-bs", "-bs needs a value"),
        ("-bs 9", "from -1 to 8"),
        ("-l xx", "a code such as en"),
        ("-et nan", "cannot be nan"),
        ("-t none", "-t cannot be none"),
    ],
)
def test_our_server_is_strict_before_it_is_started(args: str, problem: str) -> None:
    with pytest.raises(LemonbusError) as told:
        made(whispercpp_args=args).check()
    assert told.value.failure.param == "whispercpp_args"
    assert problem in told.value.failure.message
    with contextlib.suppress(FlagError):
        made(backend="system", whispercpp_args=args)  # what another program takes is its own business


@given(st.lists(st.one_of(st.sampled_from(sorted(FLAGS)), st.text(max_size=8)), max_size=6))
def test_any_command_line_is_read_or_refused(words: list[str]) -> None:
    with contextlib.suppress(FlagError):
        read(words)


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, {}),
        ({"unknown": "x", "language": "DE", "translate": "true"}, {"<language>": "de", "translate": True}),
        ({"temperature": "0.4", "temperature_inc": "1e-9"}, {"temperature": 0.4, "temperature_inc": 0.05}),
        ({"temperature_inc": "0", "suppress_non_speech": "1"}, {"temperature_inc": 0.0, "suppress_nst": True}),
    ],
)
def test_wishes(fields: dict[str, str], wanted: dict[str, Any]) -> None:
    assert wishes(fields) == wanted


@pytest.mark.parametrize(
    ("field", "text"),
    [("language", "klingon"), ("temperature", "2"), ("temperature", "inf"), ("translate", "maybe"), ("best_of", "x")],
)
def test_wishes_that_make_no_sense(field: str, text: str) -> None:
    with pytest.raises(FlagError, match=f"{field} cannot be {text}"):
        wishes({field: text})


def test_the_environment() -> None:
    inherited = {"PATH": "/bin", "WHISPER_API_KEY": "k", "LEMONBUS_API_KEY": "k", "HF_TOKEN": "t", "PYTHONPATH": "p"}
    always = {"PATH": "/bin", "GOMP_SPINCOUNT": "300", "GGML_NO_BACKTRACE": "1"}
    assert made().environment(inherited) == {**always, "PYTHONPATH": "p"}
    assert made(key="s").environment(inherited) == {**always, "PYTHONPATH": "p", "WHISPER_API_KEY": "s"}
    assert made(backend="system", key="s").environment(inherited) == always


def put(home: Path, backend: str, program: str = "") -> Path:
    folder = installed.home(str(home), "whispercpp", backend) / "1.2-abc"
    (folder / installed.FILES).mkdir(parents=True)
    record = Record("whispercpp", backend, "1.2", "abc", program)
    (folder / installed.RECORD).write_bytes(msgspec.json.encode(record))
    return folder


def test_what_was_installed(tmp_path: Path) -> None:
    with pytest.raises(LemonbusError, match="`lemonbus backends install whispercpp:vulkan` does that"):
        made(backend="vulkan", home=str(tmp_path)).check()
    program = put(tmp_path, "vulkan", "whisper-server") / installed.FILES / "whisper-server"
    program.touch(mode=0o755)
    backend = made(backend="vulkan", home=str(tmp_path))
    backend.check()
    assert backend.command(5)[0] == str(program)
    assert backend.environment({"PYTHONPATH": "p"})["LD_LIBRARY_PATH"] == str(program.parent)
    assert "PYTHONPATH" not in backend.environment({"PYTHONPATH": "p"})
    assert backend.facts(b"").version == "1.2"
    folder = put(tmp_path, "cpu")
    assert made(home=str(tmp_path)).environment({"PYTHONPATH": "p"})["PYTHONPATH"] == f"p{os.pathsep}{folder / 'site'}"


def test_a_missing_executable(tmp_path: Path) -> None:
    spec = ModelSpec("x", "x", "whispercpp", "system", "audio", "/models/x.bin")
    with pytest.raises(LemonbusError) as told:
        WhisperCpp(spec, Settings(whisper_server=str(tmp_path / "no-such-server"))).check()
    assert "no-such-server was not found" in told.value.failure.message
    assert str(tmp_path) not in told.value.failure.message


@pytest.mark.parametrize("endpoint", ["audio/transcriptions", "audio/translations"])
def test_requests(endpoint: str) -> None:
    request = made().request(endpoint, "", FORM, stream=False)
    assert (request.method, request.path, request.streamed) == ("POST", "/inference", False)
    boundary = forms.boundary_in(request.content_type)
    told = {part.name: part.data for part in forms.read(boundary, request.body)}
    assert told["response_format"] == b"verbose_json"
    assert (told["language"], told["file"]) == (b"de", b"RIFF")
    assert told.get("translate") == (b"true" if endpoint == "audio/translations" else None)


@pytest.mark.parametrize(
    ("kind", "endpoint", "body", "code"),
    [
        ("audio", "chat/completions", FORM, Code.UNSUPPORTED),
        ("llm", "audio/transcriptions", FORM, Code.UNSUPPORTED),
        ("audio", "audio/transcriptions", b"{}", Code.INVALID_REQUEST),
        ("audio", "audio/transcriptions", forms.written([Part("best_of", b"x")]), Code.INVALID_REQUEST),
    ],
)
def test_requests_that_cannot_be(kind: str, endpoint: str, body: bytes, code: Code) -> None:
    with pytest.raises(LemonbusError) as told:
        made(kind=kind).request(endpoint, "", body, stream=False)
    assert told.value.failure.code == code


def test_whether_it_is_busy() -> None:
    backend = made()
    assert b"file" not in backend.busy().body
    assert backend.busy_status == 400
    assert backend.processing(b"Invalid request") == 0


@pytest.mark.parametrize(
    ("line", "level"), [(b"whisper_init_state: kv", "debug"), (b"error: failed to read", "warning")]
)
def test_what_it_prints(line: bytes, level: str) -> None:
    assert made().parse(line) == (level, line.decode())


# What it answers.


def test_what_whisper_server_says() -> None:
    pieces = [" One", "s", ",", " up", "on", "!"]
    said = {
        "task": "transcribe",
        "language": "english",
        "duration": 2.0,
        "text": " Ones,\n upon!\n",
        "segments": [
            {"id": 0, "text": " Ones,", "start": 0.0, "end": 1.0, "tokens": [1, 2, 3], "avg_logprob": None},
            {"id": 1, "text": " upon!", "start": 1.0, "end": 2.0, "tokens": [4, 5, 6], "no_speech_prob": 0.1},
        ],
        "detected_language": "english",
    }
    for place, segment in enumerate(said["segments"]):  # type: ignore[arg-type]
        words = pieces[3 * place : 3 * place + 3]
        segment["words"] = [  # type: ignore[index]
            {"word": word, "start": at, "end": at + 1, "t_dtw": -1, "probability": 0.5} for at, word in enumerate(words)
        ]
    found = msgspec.json.decode(heard.transcript(json.dumps(said).encode()), type=Transcript)
    assert found.text == "Ones, upon!"
    assert [word for each in found.segments for word in each.words] == [Word("Ones,", 0, 3), Word("upon!", 0, 3)]
    assert found.usage is not None
    assert found.usage.completion_tokens == 6


@pytest.mark.parametrize("answer", [b"", b"text", b"[]", b'{"segments":3}'])
def test_answers_that_make_no_sense(answer: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        heard.transcript(answer)


def test_words_of_languages_without_spaces() -> None:
    segment = Segment(words=[Word("今天", 0, 1), Word("天气", 1, 2), Word("。", 2, 3)])
    assert heard.words(segment, "chinese") == [Word("今天", 0, 1), Word("天气。", 1, 3)]
    assert heard.words(segment, "english") == [Word("今天天气。", 0, 3)]


# Its file.


HEAD = b"lmgg" + struct.pack("<13i", 100, 1500, 32, 1, 1, 448, 32, 1, 1, 1, 1, 1, 201) + bytes(4 * 201)


@pytest.mark.parametrize("name", ["tiny-whisper", "slow-whisper"])
def test_whole_files_are_whole(name: str) -> None:
    ggml.check(MODELS / f"{name}.bin")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not a ggml file"),
        (b"GGUF\3\0\0\0", "a GGUF file, not"),
        (b"PK\3\4", "not a ggml file"),
        (b"lmgg", "truncated"),
        (HEAD[:40], "truncated"),
        (HEAD + struct.pack("<i", -1), "vocabulary"),
        (HEAD + struct.pack("<3i", 1, 2**30, 0), "vocabulary"),
        (HEAD + struct.pack("<4i", 0, 99, 1, 0), "tensors makes no sense"),
        (HEAD + struct.pack("<8i", 0, 4, 1, 0, *[2**24 - 1] * 4), "truncated: .* bytes are missing"),
        (HEAD + bytes(4) + (struct.pack("<4i", 1, 1, 0, 1) + b"xdata") * 51, "tensors too many"),
    ],
)
def test_files_that_are_none(tmp_path: Path, data: bytes, why: str) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(data)
    with pytest.raises(BrokenError, match=why):
        ggml.check(path)


@pytest.mark.parametrize(
    ("place", "size"),
    [(place, size) for place in range(13) for size in (-1, 0, 2**24) if (place, size) != (10, 0)]
    + [(3, 5), (7, 5), (2, 64), (4, 257), (8, 257), (9, 3), (11, 3), (12, 200), (12, 202)],
)
def test_headers_that_would_end_the_engine(tmp_path: Path, place: int, size: int) -> None:
    path = tmp_path / "x.bin"
    data = bytearray((MODELS / "tiny-whisper.bin").read_bytes())
    struct.pack_into("<i", data, 4 + 4 * place, size)
    path.write_bytes(data)
    with pytest.raises(BrokenError, match="its header makes no sense"):
        ggml.check(path)


def tensors_of(data: bytes) -> list[int]:
    """Where the tensors of the tiny model begin."""
    at = 48 + 8 + 4 * 2 * 201
    (words,) = struct.unpack_from("<i", data, at)
    at += 4
    for _ in range(words):
        at += 4 + struct.unpack_from("<i", data, at)[0]
    found = []
    while at < len(data):
        found.append(at)
        dimensions, length, kind = struct.unpack_from("<3i", data, at)
        elements = 1
        for size in struct.unpack_from(f"<{dimensions}i", data, at + 12):
            elements *= size
        at += 12 + 4 * dimensions + length + elements * (4, 2)[kind]
    return found


def test_any_cut_is_noticed(tmp_path: Path) -> None:
    data = (MODELS / "tiny-whisper.bin").read_bytes()
    path = tmp_path / "x.bin"
    places = tensors_of(data)
    path.write_bytes(data)
    for size in [len(data) - 1, *places[-1:0:-7], places[1] + 5, places[0] + 2, 1500, 60, 5]:
        with path.open("r+b") as file:
            file.truncate(size)
        with pytest.raises(BrokenError, match="it is truncated"):
            ggml.check(path)


def test_a_broken_file_is_told_before_anything_is_started(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(b"lmgg")
    spec = ModelSpec("x", "x", "whispercpp", "cpu", "audio", str(path))
    with pytest.raises(ValueError, match="truncated"):
        WhisperCpp(spec, Settings()).examine()
