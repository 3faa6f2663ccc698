"""The ``ollama`` package for JavaScript shows what went wrong, in Node.js and in a browser."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.clients.npm_packages import node_program
from tests.support.server import LemonbusServer

CALLS = ("generate", "chat", "chatStream", "embeddings", "embed", "show", "delete", "copy", "wrongOption")


def test_errors_are_readable(shared_server: LemonbusServer, tmp_path: Path) -> None:
    command = node_program(Path(__file__).parent / "errors.mjs", tmp_path)
    url = f"http://127.0.0.1:{shared_server.port}"
    done = subprocess.run([*command, url, "extra.tiny-chat"], capture_output=True, text=True, timeout=90, check=True)
    found: dict[Any, Any] = {(line["client"], line["call"]): line for line in map(json.loads, done.stdout.splitlines())}
    assert set(found) == {(client, call) for client in ("node", "browser") for call in CALLS}
    for (_, call), line in found.items():
        wrong = call == "wrongOption"
        assert (line["name"], line["status"]) == ("ResponseError", 400 if wrong else 404), line
        assert ("temperature" if wrong else "nope") in line["message"], line
