"""Our server for ONNX Runtime GenAI as a process: its command line, its exit codes, hang-ups and its end."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clients.http_client import RawHttpClient
from tests.support.models.genai_models import write_genai_model
from tests.support.waiting import wait_for
from tests.workers.engine_servers.oga_server.oga_process import COMMAND, complete, oga_server
from workers.backends.flag_table import FlagError
from workers.engine_servers.oga_server.server import parse


@pytest.fixture
def endless(tmp_path: Path) -> Iterator[tuple[RawHttpClient, subprocess.Popen[bytes]]]:
    with oga_server(write_genai_model(tmp_path, "tiny-oga-loop")) as both:
        yield both


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "-m is missing"),
        (["-m", "x", "--nope"], "unknown argument --nope"),
        (["-m"], "-m needs a value"),
        (["-m", "x", "--port", "many"], "--port cannot be many"),
        (["-m", "x", "--port", "0"], "out of range"),
        (["-m", "x", "-t", "-1"], "out of range"),
        (["-m", "x", "--host", "0.0.0.0"], "--host must be this machine"),
    ],
)
def test_invalid_command_lines(words: list[str], expected: str) -> None:
    with pytest.raises(FlagError, match=expected):
        parse(words)


@pytest.mark.parametrize(
    ("words", "code", "expected"), [(["--nope"], 2, "unknown argument --nope"), (["-m", "/nowhere"], 1, "cannot load")]
)
def test_exit_code_when_it_cannot_start(words: list[str], code: int, expected: str) -> None:
    ended = subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=20, check=False)
    assert (ended.returncode, expected in ended.stderr, ended.stderr.count("\n")) == (code, True, 1), ended.stderr


@pytest.mark.parametrize("stream", [True, False])
def test_a_hang_up_is_noticed_also_in_the_queue(
    endless: tuple[RawHttpClient, subprocess.Popen[bytes]], stream: bool
) -> None:
    client, _ = endless

    def working() -> bool:
        return bool(client.get("/slots").json()[0]["is_processing"])

    first, second = (
        client.start("POST", "/v1/completions", {"prompt": "x", "stream": stream, "max_tokens": 16_000})
        for _ in range(2)
    )
    wait_for(working, "it works")
    second.hang_up()
    first.hang_up()
    wait_for(lambda: not working(), "it has stopped")
    assert complete(client, max_tokens=1).status == 200


def test_sigterm_during_an_answer(endless: tuple[RawHttpClient, subprocess.Popen[bytes]]) -> None:
    client, process = endless
    talk = client.start("POST", "/v1/completions", {"prompt": "x", "stream": True})
    talk.until(lambda seen: seen.events)
    process.send_signal(signal.SIGTERM)
    assert process.wait(5) == 0
    talk.finish()
    assert not talk.done
