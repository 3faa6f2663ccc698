"""Our server for Kokoro as a process: its answers, errors, and end; and the forms of its sound."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.models.kokoro_models import write_kokoro_model
from tests.support.ports import free_port
from tests.support.waiting import wait_for
from workers.backends.flag_table import FlagError
from workers.engine_servers.kokoro_server import http_handler, server
from workers.engine_servers.kokoro_server.sound_encoder import SoundEncoder

KEY = "open-sesame"


class KokoroServerProcess:
    """One process, and requests to it."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process, self.port = process, port

    def request(self, method: str, path: str, body: Any = None, key: str = KEY) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
            connection.request(method, path, data, {"Authorization": f"Bearer {key}"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except OSError:
            return 0, b""
        finally:
            connection.close()

    def speech(self, **fields: Any) -> tuple[int, bytes]:
        return self.request("POST", "/v1/audio/speech", {"input": "Hello world.", "response_format": "pcm", **fields})


@contextmanager
def running(model: Path, *words: str) -> Iterator[KokoroServerProcess]:
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "workers.engine_servers.kokoro_server",
        "-m",
        str(model),
        "-p",
        str(port),
        "-t",
        "1",
    ]
    with subprocess.Popen(
        [*command, *words],
        env={**os.environ, "KOKORO_API_KEY": KEY},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield KokoroServerProcess(process, port)
        finally:
            process.kill()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KokoroServerProcess]:
    with running(write_kokoro_model(tmp_path_factory.mktemp("m"))) as engine:
        wait_for(lambda: engine.request("GET", "/health")[0] == 200, "it is ready", 30)
        yield engine


def test_its_sound_has_the_length_of_the_text(tiny: KokoroServerProcess) -> None:
    status, sound = tiny.speech()
    assert status == 200
    assert len(sound) / 2 / 24_000 == pytest.approx(len("həlˈO wˈɜɹld.") * 0.05, abs=0.1)


def test_what_it_says_of_itself(tiny: KokoroServerProcess) -> None:
    assert json.loads(tiny.request("GET", "/v1/audio/voices")[1]) == {"voices": ["af_heart", "am_onyx"]}
    assert json.loads(tiny.request("GET", "/slots")[1]) == [{"id": 0, "is_processing": False}]
    assert json.loads(tiny.request("GET", "/props")[1])["total_slots"] == 1
    assert tiny.request("GET", "/v1/models")[0] == 200


@pytest.mark.parametrize(
    ("fields", "status", "word"),
    [
        ({"input": ""}, 400, "input"),
        ({"input": "???"}, 400, "no words"),
        ({"voice": "bob"}, 400, "af_heart, am_onyx"),
        ({"speed": 9}, 400, "speed"),
        ({"response_format": "doc"}, 400, "doc"),
    ],
    ids=str,
)
def test_errors_have_a_status_and_a_reason(
    tiny: KokoroServerProcess, fields: dict[str, Any], status: int, word: str
) -> None:
    found, body = tiny.speech(**fields)
    assert found == status
    assert word in json.loads(body)["error"]["message"]


def test_an_answer_that_becomes_too_long_breaks_off() -> None:
    http_handler.check_length(http_handler.MAX_FRAMES)
    with pytest.raises(OverflowError, match="1800 s"):
        http_handler.check_length(http_handler.MAX_FRAMES + 1)


def test_only_its_worker_may_ask_it(tiny: KokoroServerProcess) -> None:
    assert tiny.request("POST", "/v1/audio/speech", {"input": "a"}, key="wrong")[0] == 401
    assert tiny.request("POST", "/v1/audio", {"input": "a"})[0] == 404
    assert tiny.request("POST", "/v1/audio/speech", b"[")[0] == 400


def test_a_voice_that_cannot_be_read_is_an_error_of_the_server(tmp_path: Path) -> None:
    model = write_kokoro_model(tmp_path)
    os.truncate(model.parent / "voices" / "am_onyx.bin", 10)
    with running(model) as engine:
        wait_for(lambda: engine.request("GET", "/health")[0] == 200, "it is ready", 30)
        status, body = engine.speech(voice="am_onyx")
        assert (status, "am_onyx" in json.loads(body)["error"]["message"]) == (500, True)
        assert engine.speech()[0] == 200


def test_sigterm_ends_it(tmp_path: Path) -> None:
    with running(write_kokoro_model(tmp_path)) as engine:
        wait_for(lambda: engine.request("GET", "/health")[0] == 200, "it is ready", 30)
        engine.process.send_signal(signal.SIGTERM)
        assert engine.process.wait(30) == 0


@pytest.mark.parametrize("broken", ["model", "voices", "lexicon", "inputs"])
def test_what_cannot_be_loaded_ends_it_with_a_reason(tmp_path: Path, broken: str) -> None:
    model = write_kokoro_model(tmp_path)
    if broken == "model":
        model.write_bytes(b"\x08\x08")
    elif broken == "inputs":
        model.write_bytes(model.read_bytes().replace(b"input_ids", b"input_idx"))
    else:
        (model.parent / broken).rename(model.parent / "elsewhere")
    with running(model) as engine:
        assert engine.process.wait(30) == 1
        assert engine.process.stderr is not None
        assert b"cannot load the model" in engine.process.stderr.read()


@pytest.mark.parametrize(
    "words",
    [[], ["-m", "x", "--host", "0.0.0.0"], ["-m", "x", "-p", "0"], ["-m", "x", "-t", "-1"], ["-m", "x", "--no"]],
)
def test_a_wrong_command_line_is_refused(words: list[str]) -> None:
    with pytest.raises(FlagError):
        server.parse(words)


def test_the_defaults_of_the_command_line() -> None:
    found = server.parse(["-m", "/m/kokoro.onnx"])
    assert (found["alias"], found["lexicon"], found["espeak"]) == ("kokoro", "/m/lexicon", "")


@pytest.mark.parametrize("form", ["wav", "pcm"])
def test_samples_beyond_full_scale_are_limited(form: str) -> None:
    sound = SoundEncoder(form).encode(np.array([2, -2, 0], np.float32))
    assert sound[-6:] == b"\xff\x7f\x01\x80\0\0"


@pytest.mark.parametrize("form", ["mp3", "opus", "aac", "flac"])
def test_an_encoder_sends_bytes_before_its_end(form: str) -> None:
    encoder = SoundEncoder(form)
    assert encoder.encode(np.zeros(48_000, np.float32))
    assert encoder.encode(np.zeros(0, np.float32)) == b""
    assert encoder.end()
