"""The AI SDK's ``openai`` provider over Responses (its default) and chats: texts, streams, tools, pictures, vectors, errors."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol.config.api_keys import KEYS_FILE, ApiKey, Scope, digest, write_keys
from tests.clients.npm_packages import node_program
from tests.support import processes
from tests.support.images import png
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.server import LemonbusServer

CHECKS = Path(__file__).parent / "checks.mjs"
MODES = ("responses", "chat")


@pytest.fixture
def server(keyed_server: LemonbusServer) -> LemonbusServer:
    """A server with a key for everything, and for each mode a key that allows one request a minute."""
    server = keyed_server
    keys = [ApiKey(name="root", sha256=digest("root"), scopes=[Scope.INFERENCE])]
    keys += [ApiKey(name=m, sha256=digest(m), scopes=[Scope.INFERENCE], requests_per_minute=1) for m in MODES]
    write_keys(Path(server.settings.state_dir) / KEYS_FILE, keys)
    return server


def lines_of(program: list[str | Path], server: LemonbusServer) -> Iterator[dict[str, Any]]:
    """Run the checks; yield what they print. They always end: each of their requests has a deadline."""
    picture = base64.b64encode(png(8, 8)).decode()
    command = [*program, f"http://127.0.0.1:{server.port}/v1", CHAT_TEXT, picture]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as node:
        try:
            assert node.stdout is not None
            yield from map(json.loads, node.stdout)
        finally:
            node.kill()


def test_every_check(server: LemonbusServer, subtests: pytest.Subtests, tmp_path: Path) -> None:
    seen = set()
    for line in lines_of(node_program(CHECKS, tmp_path), server):
        if "streaming" in line:
            processes.kill(server.engine_pid(line["streaming"]))
            continue
        seen.add(line["check"])
        with subtests.test(line["check"]):
            assert not line["problem"]
    written = re.findall(r"^  async (\w+)\(", CHECKS.read_text(), re.MULTILINE)
    expected = {f"{mode}: {name}" for mode in MODES for name in written if name != "embeddings"}
    assert seen == expected | {"embeddings", "end"}
