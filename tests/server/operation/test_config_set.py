"""``lemonbus config set`` with a real server: it reads what was written, and a file that it refuses is put back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.configuration_file import ConfiguredServer
from tests.support.server import ROOT
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def server() -> Iterator[ConfiguredServer]:
    with ConfiguredServer(gateway_workers=1, admin_api_key="the-key") as server:
        yield server


def config(server: ConfiguredServer, *words: str) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("LEMON", "XDG_"))}
    return subprocess.run(
        [sys.executable, ROOT / "deploy" / "launch", "config", *words, "--config", str(server.file)],
        env=variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def in_use(server: ConfiguredServer, name: str) -> Any:
    return server.client.get("/internal/settings", **server.admin_headers).json()["settings"][name]


def test_the_server_uses_what_was_set_until_it_is_unset(server: ConfiguredServer) -> None:
    before = server.file.read_text()
    done = config(server, "set", "queue_requests", "7", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    (change,) = answer["reload"]["changes"]
    assert (change["setting"], change["new"], change["effects"]) == ("queue_requests", 7, ["now"])
    assert answer["notice"] == ""
    assert in_use(server, "queue_requests")["value"] == 7
    assert "the server used this already" in config(server, "set", "queue_requests", "7").stderr
    done = config(server, "unset", "queue_requests")
    assert done.returncode == 0, done.stderr
    assert server.file.read_text() == before
    assert in_use(server, "queue_requests")["origin"] == "default"


def test_what_the_server_refuses_is_put_back(server: ConfiguredServer, tmp_path: Path) -> None:
    """A file of API keys that is broken is wrong for the server, and this command does not look at it."""
    before = server.file.read_text()
    (tmp_path / "keys.json").write_text("{")
    done = config(server, "set", "state_dir", str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert "the server refuses this, and the file is as it was: " in done.stderr
    assert server.file.read_text() == before
    wait_for(lambda: server.health()["status"] == "ok", "the server goes on")
