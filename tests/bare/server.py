"""``make serve`` on the bare machine: it must answer a chat, and end when it is told to."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from typing import IO

import psutil

from tests.bare.root import Root
from tests.support.clients.http_client import RawHttpClient
from tests.support.ports import free_port

MODEL = "SmolLM2-135M-Instruct-GGUF"
READY_S = 900.0
"""Packages and a model of 98 MB come over the network first."""
END_S = 60.0


def check(machine: Root) -> int:
    """Start it, send one chat and end it. Return 0 if all went well; otherwise show its output."""
    port = free_port()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            machine.words(f"make serve PORT={port}"), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            answer = _answer(process, port)
            problem = _end(process) if answer else "make serve answered no chat"
        finally:
            process.kill()
            process.wait()
        if problem:
            _show(output, problem)
            return 1
    print(f"bare: make serve answered {answer!r}", flush=True)
    return 0


def _answer(process: subprocess.Popen[bytes], port: int) -> str:
    """Return a chat's answer; ``""`` if the server ended or none came in time."""
    client = RawHttpClient(port)
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError):
            answer = client.chat(MODEL, READY_S, max_tokens=16)
            if answer.status == 200:
                return answer.text
        time.sleep(1.0)
    return ""


def _end(process: subprocess.Popen[bytes]) -> str:
    """Tell the server to end, as a service manager would; return what went wrong."""
    inside = psutil.Process(process.pid).children(recursive=True)
    (make,) = [each for each in inside if each.name() == "make"]
    (server,) = make.children()
    server.terminate()
    try:
        code = process.wait(END_S)
    except subprocess.TimeoutExpired:
        return "make serve did not end"
    return f"make serve ended with {code}" if code else ""


def _show(output: IO[str], problem: str) -> None:
    output.seek(0)
    sys.stdout.writelines(output.readlines()[-60:])
    print(f"bare: {problem}", flush=True)
