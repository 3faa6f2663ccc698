"""Fixtures for tests of the commands: an empty configuration, a fake server, and commands that run in this process."""

from __future__ import annotations

import io
import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.cli.main import main
from tests.gateway.fake_server import FakeServer, running_fake_server

Ends = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def empty_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide the configuration of this machine and of the developer, and the server that they run."""
    for name in list(os.environ):
        if name.startswith(("LEMONBUS_", "LEMONADE_", "_LEMONBUS")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def free_port() -> Iterator[int]:
    """A port that is bound without a listener, so that no other process can listen there."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    with running_fake_server() as fake_server:
        monkeypatch.setenv("LEMONBUS_URL", fake_server.url)
        yield fake_server


@pytest.fixture
def lemonbus(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ends:
    """Run a command in this process; return its exit code, stdout and stderr."""

    def run(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        code = main(list(arguments))
        output = capsys.readouterr()
        return code, output.out, output.err

    return run
