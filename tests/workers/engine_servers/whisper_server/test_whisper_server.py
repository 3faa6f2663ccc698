"""Our own whisper-server as a process: its answers, the order of requests, and its end."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from protocol.config.settings import Settings
from protocol.models.recipes import ModelSpec
from protocol.wire import form_data
from protocol.wire.form_data import FormPart
from tests.support import processes
from tests.support.audio import wav
from tests.support.models.tiny_models import CHAT_TEXT, tiny_models
from tests.support.ports import free_port
from tests.support.waiting import wait_for
from workers.backends.whispercpp.backend import WhisperCppBackend

MODELS = tiny_models() / "models"
KEY = "open-sesame"
SOUND = FormPart("file", wav(1.2), "a.wav")
LONG = FormPart("file", wav(120, rate=4_000, width=1), "long.wav")
"""Four windows."""
VERY_LONG = FormPart("file", wav(600, rate=4_000, width=1), "very-long.wav")
"""Twenty windows for the slow model, which take over ten seconds."""


class WhisperServerProcess:
    """One process, and requests to it."""

    def __init__(self, backend: WhisperCppBackend, process: subprocess.Popen[bytes], port: int) -> None:
        self.backend, self.process, self.port = backend, process, port

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)

    def get(self, path: str, key: str = "") -> tuple[int, bytes]:
        connection = self.connect()
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {key}"} if key else {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except OSError:
            return 0, b""
        finally:
            connection.close()

    def start(self, *parts: FormPart, **headers: str) -> http.client.HTTPConnection:
        """Send a request and read nothing yet."""
        body = form_data.encode(parts)
        connection = self.connect()
        given = {"Content-Type": f"multipart/form-data; boundary={form_data.boundary_from_body(body)}"}
        given["Authorization"] = f"Bearer {KEY}"
        connection.request(
            "POST", "/inference", body, given | {name.replace("_", "-"): v for name, v in headers.items()}
        )
        return connection

    def ask(self, *parts: FormPart, **headers: str) -> tuple[int, str, bytes]:
        connection = self.start(*parts, **headers)
        try:
            answer = connection.getresponse()
            return answer.status, answer.headers["Content-Type"], answer.read()
        finally:
            connection.close()


@contextmanager
def running(model: str) -> Iterator[WhisperServerProcess]:
    spec = ModelSpec("x", "x", "whispercpp", "cpu", "audio", str(MODELS / f"{model}.bin"), options={"threads": 1})
    backend = WhisperCppBackend(spec, Settings())
    backend._random_key = KEY
    port = free_port()
    with subprocess.Popen(
        backend.command(port),
        env=backend.environment(dict(os.environ)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        engine = WhisperServerProcess(backend, process, port)
        try:
            wait_for(lambda: engine.get("/health")[0] == 200, f"{model} is healthy", 20)
            yield engine
        finally:
            process.kill()


@pytest.fixture(scope="module")
def tiny() -> Iterator[WhisperServerProcess]:
    with running("tiny-whisper") as engine:
        yield engine


@pytest.mark.parametrize(
    ("form", "kind", "begins"),
    [
        ("json", "application/json", f'{{"text":"{CHAT_TEXT}'),
        ("text", "text/plain; charset=utf-8", CHAT_TEXT),
        ("srt", "text/plain; charset=utf-8", "1\n00:00:00,000 --> 00:00:01,000\nOnce"),
        ("vtt", "text/plain; charset=utf-8", "WEBVTT\n\n00:00:00.000 --> 00:00:01.000\nOnce"),
        ("verbose_json", "application/json", '{"task":"transcribe","language":"english","duration":1.2,'),
    ],
)
def test_forms_of_the_answer(tiny: WhisperServerProcess, form: str, kind: str, begins: str) -> None:
    status, stderr_text, body = tiny.ask(FormPart("response_format", form.encode()), SOUND)
    assert (status, stderr_text) == (200, kind)
    assert body.decode().startswith(begins), body


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"duration": 2**31 - 1}, CHAT_TEXT),
        ({"duration": 2**31 - 1, "offset_t": 600}, ""),
        ({"offset_t": 1200, "duration": 1}, ""),
        ({"offset_t": 2**31 - 1}, ""),
    ],
)
def test_nothing_behind_the_end_of_a_recording_is_transcribed(
    tiny: WhisperServerProcess, fields: dict[str, int], text: str
) -> None:
    parts = [FormPart(name, str(value).encode()) for name, value in fields.items()]
    status, _, body = tiny.ask(*parts, SOUND)
    assert status == 200
    assert json.loads(body)["text"].startswith(text)


def test_tokens_and_words(tiny: WhisperServerProcess) -> None:
    [segment] = json.loads(tiny.ask(FormPart("response_format", b"verbose_json"), SOUND)[2])["segments"]
    assert segment["tokens"] == list(range(len(CHAT_TEXT.split())))
    assert [word["word"] for word in segment["words"]] == [f" {word}" for word in CHAT_TEXT.split()]
    assert segment["words"][0]["start"] == 0.0
    assert segment["no_speech_prob"] == 0.0, "it knows its story"
    assert segment["words"][-1]["end"] == segment["end"] == 1.0


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([FormPart("language", b"en")], "no 'file' field"),
        ([SOUND, SOUND], "more than one 'file'"),
        ([FormPart("file", b"ID3 a song", "a.mp3")], "send WAV, MP3"),
        ([FormPart("response_format", b"xml"), SOUND], "response_format cannot be xml"),
        ([FormPart("beam_size", b"99"), SOUND], "beam_size cannot be 99"),
    ],
)
def test_bad_requests(tiny: WhisperServerProcess, parts: list[FormPart], why: str) -> None:
    status, _, body = tiny.ask(*parts)
    error = json.loads(body)["error"]
    assert (status, error["code"], error["type"]) == (400, 400, "invalid_request_error")
    assert why in error["message"]


STREAM = FormPart("stream", b"true")


def test_a_stream_has_one_event_for_each_segment(tiny: WhisperServerProcess) -> None:
    status, actual_type, body = tiny.ask(STREAM, LONG)
    assert (status, actual_type) == (200, "text/event-stream")
    *events, last, rest = body.split(b"\n\n")
    assert (last, rest) == (b"data: [DONE]", b"")
    segments = [json.loads(event.removeprefix(b"data: "))["segment"] for event in events]
    assert [segment["id"] for segment in segments] == [0, 1, 2, 3]
    assert {segment["text"].strip() for segment in segments} == {CHAT_TEXT.strip()}


def test_what_is_wrong_before_a_stream_begins_has_a_status(tiny: WhisperServerProcess) -> None:
    assert tiny.ask(STREAM, FormPart("file", b"ID3 a song"))[0] == 400


def test_a_client_that_leaves_a_stream_harms_nobody(tiny: WhisperServerProcess) -> None:
    connection = tiny.start(STREAM, LONG)
    connection.getresponse().read(10)
    connection.close()
    assert CHAT_TEXT in tiny.ask(SOUND)[2].decode()


def test_silence_gives_no_text_also_after_speech(tiny: WhisperServerProcess) -> None:
    assert CHAT_TEXT in tiny.ask(SOUND)[2].decode()
    for seconds in (0.0, 0.05):
        assert json.loads(tiny.ask(FormPart("file", wav(seconds), "a.wav"))[2]) == {"text": ""}


def test_decoding_as_it_was_asked_for(tiny: WhisperServerProcess) -> None:
    fields = {
        "beam_size": "3",
        "best_of": "2",
        "prompt": "Hello",
        "temperature": "0.2",
        "language": "de",
        "max_len": "9",
    }
    parts = [FormPart(name, text.encode()) for name, text in fields.items()]
    status, _, body = tiny.ask(*parts, FormPart("response_format", b"verbose_json"), SOUND)
    assert status == 200, body
    assert json.loads(body)["language"] == "english", "the model knows no other"


def test_other_paths_keys_and_bodies(tiny: WhisperServerProcess) -> None:
    assert tiny.get("/health") == (200, b'{"status": "ok"}'), "which needs no key"
    assert tiny.get("/v1/models")[0] == 401
    assert json.loads(tiny.get("/v1/models", KEY)[1])["data"][0]["id"] == "tiny-whisper"
    assert tiny.get("/nothing", KEY)[0] == 404
    assert tiny.ask(SOUND, Authorization="Bearer other")[0] == 401
    assert tiny.ask(SOUND, Authorization="")[0] == 401
    assert tiny.ask(SOUND, Authorization="", X_Api_Key=KEY)[0] == 200
    assert tiny.ask(SOUND, Content_Type="application/json")[0] == 400
    assert tiny.ask(SOUND, Content_Type="multipart/form-data; boundary=other")[0] == 400
    with socket.create_connection(("127.0.0.1", tiny.port), timeout=10) as connection:
        connection.sendall(f"POST /inference HTTP/1.1\r\nAuthorization: Bearer {KEY}\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 411 ")


def quiet(engine: WhisperServerProcess) -> bool:
    request = engine.backend.busy()
    connection = engine.connect()
    try:
        headers = {"Content-Type": request.content_type, "Authorization": f"Bearer {KEY}"}
        connection.request(request.method, request.path, request.body, headers)
        answer = connection.getresponse()
        return answer.status == engine.backend.busy_status and engine.backend.processing(answer.read()) == 0
    finally:
        connection.close()


def test_one_request_at_a_time_and_a_hang_up_stops_it() -> None:
    with running("slow-whisper") as engine:
        spent = cpu_of(engine)
        first = engine.start(VERY_LONG)
        waiting = engine.start(VERY_LONG)
        wait_for(lambda: cpu_of(engine) > spent + 0.1, "it works on the first")
        assert engine.get("/health")[0] == 200, "meanwhile"
        waiting.close()
        first.close()
        assert quiet(engine)
        assert cpu_of(engine) - spent < 5, "it did not hear all of it"
        engine.process.send_signal(signal.SIGTERM)
        assert engine.process.wait(5) == 0


def cpu_of(engine: WhisperServerProcess) -> float:
    fields = Path(f"/proc/{engine.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_invalid_command_lines(tmp_path: Path) -> None:
    def run(*words: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "workers.engine_servers.whisper_server", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        return done.returncode, done.stderr

    assert run("--no-such-flag") == (2, "whisper-server: unknown argument --no-such-flag\n")
    broken = tmp_path / "x.bin"
    broken.write_bytes(b"lmgg")
    code, stderr_text = run("-m", str(broken), "--port", str(free_port()))
    assert (code, stderr_text) == (1, "whisper-server: cannot load the model: it is truncated\n")


def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys, time; p = subprocess.Popen(sys.argv[1:]); print(p.pid, flush=True); time.sleep(60)"
    )
    port = free_port()
    command = [sys.executable, "-m", "workers.engine_servers.whisper_server", "-m", str(MODELS / "tiny-whisper.bin")]
    with subprocess.Popen(
        [sys.executable, "-c", script, *command, "--port", str(port)], stdout=subprocess.PIPE, cwd=Path.cwd()
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        engine = WhisperServerProcess(
            WhisperCppBackend(ModelSpec("x", "x", "whispercpp", "cpu", "audio", ""), Settings()), parent, port
        )
        try:
            wait_for(lambda: engine.get("/health")[0] == 200, "it is healthy", 20)
        finally:
            parent.kill()
        wait_for(lambda: not processes.alive(pid), "it has ended with its parent")
