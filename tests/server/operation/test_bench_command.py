"""``lemonbus bench`` at a real server: its figures are those of the server, and an interrupted one leaves nothing running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

from tests.conftest import StartServer
from tests.gateway.cli.terminal_process import DEFAULT_SIGNALS
from tests.support.server import ROOT, LemonbusServer
from tests.support.waiting import wait_for

LOOP = "extra.tiny-loop"


def bench(server: LemonbusServer, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*DEFAULT_SIGNALS, sys.executable, ROOT / "deploy" / "launch", "bench", LOOP, *words, "--json"],
        env={**os.environ, "LEMONBUS_URL": f"http://127.0.0.1:{server.port}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def at_work(server: LemonbusServer) -> int:
    health: Any = server.client.get("/v1/health").json()
    return int(health["lemonbus"]["granted"]) + int(health["lemonbus"]["queued"])


def test_a_whole_one_and_an_interrupted_one(start_server: StartServer) -> None:
    server = start_server("tiny-loop", slots=2)
    words = ["--streams", "1,3", "--requests", "2", "--prompt-tokens", "100", "--max-tokens", "8"]
    with bench(server, *words) as whole:
        out, err = whole.communicate(timeout=60)
    report = json.loads(out)
    assert (report["slots"], report["interrupted"]) == (2, False), err
    assert report["load_seconds"] > 0
    one, three = report["levels"]
    # The engine was told to go on to the limit.
    assert [(each["requests"], each["output_tokens"]) for each in (one, three)] == [(2, 16), (3, 24)]
    assert all(80 <= each["prompt_tokens"] <= 120 for each in (one, three))
    assert any("3 streams: the model has 2 slots" in note for note in report["notes"])

    with bench(server, "--streams", "3", "--prompt-tokens", "20", "--max-tokens", "8000") as endless:
        try:
            assert endless.stderr is not None
            while "3 streams" not in (line := endless.stderr.readline()):
                assert line, "it ended early"
            wait_for(lambda: at_work(server) == 3, "its requests are at the server")
            endless.send_signal(signal.SIGINT)
            out, err = endless.communicate(timeout=60)
        finally:
            endless.kill()
    assert endless.returncode == 130
    report = json.loads(out)
    assert report["interrupted"]
    assert report["load_seconds"] is None  # it was loaded already
    wait_for(lambda: at_work(server) == 0, "its requests are cancelled")
