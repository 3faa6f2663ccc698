"""Our server for ONNX Runtime GenAI as a process, with a tiny model, and one completion of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.clients.http_client import RawHttpClient
from tests.support.clients.http_exchange import HttpExchange
from tests.support.ports import free_port
from tests.support.waiting import wait_for

COMMAND = [sys.executable, "-m", "workers.engine_servers.oga_server"]
KEY = "let-me-in"


@contextmanager
def oga_server(folder: Path, *words: str) -> Iterator[tuple[RawHttpClient, subprocess.Popen[bytes]]]:
    port = free_port()
    command = [*COMMAND, "-m", str(folder), "--port", str(port), "-t", "1", *words]
    with subprocess.Popen(command, env={**os.environ, "OGA_API_KEY": KEY}, stdin=subprocess.DEVNULL) as process:
        try:
            client = RawHttpClient(port, {"Authorization": f"Bearer {KEY}"})
            wait_for(lambda: healthy(client), "it is healthy", 20)
            yield client, process
            client.close()
        finally:
            process.kill()


def healthy(client: RawHttpClient) -> bool:
    try:
        return client.get("/health").status == 200
    except OSError:
        return False


def complete(engine: RawHttpClient, **fields: Any) -> HttpExchange:
    return engine.post("/v1/completions", {"prompt": "x", "temperature": 0, **fields})
