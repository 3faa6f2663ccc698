"""``lemonbus reload``: where it finds the server, and what it says of the file."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from protocol.config.settings import Settings, write_settings
from tests.gateway.cli.conftest import Ends
from tests.gateway.cli.terminal_process import LAUNCH
from tests.gateway.fake_server import FakeServer, Reply, running_fake_server

NOTHING_CHANGED = {"status": "success", "applied": True, "changes": [], "warnings": [], "repeated": False}


def test_the_reload_that_moves_the_server_finds_it_at_its_former_address(
    server: FakeServer, lemonbus: Ends, free_port: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("LEMONBUS_URL")
    monkeypatch.setenv("LEMONBUS_RUNTIME_DIR", str(tmp_path))
    running = Settings(port=urlsplit(server.url).port or 0)
    write_settings(running, tmp_path, {"port": "/etc/lemonbus/lemonbus.toml:1"})
    server.replies["POST", "/internal/reload"] = Reply(NOTHING_CHANGED)
    with running_fake_server() as foreign:
        for configured in (f"http://127.0.0.1:{free_port}", foreign.url):
            monkeypatch.setenv("LEMONBUS_PORT", configured.rpartition(":")[2])
            code, out, err = lemonbus("reload")
            assert (code, out) == (0, "Nothing has changed.\n")
            assert err.startswith(
                f"lemonbus: asking the server at {server.url}; the configured address is {configured}"
            )
            assert "takes effect with a reload" in err
        assert not foreign.asked, "a program that has the new address gets no key"
        write_settings(running, tmp_path, {"port": "--port"})
        lemonbus("reload")
        assert foreign.asked, "this user's own server, which was started with another port, is not what is configured"
    monkeypatch.setenv("LEMONBUS_PORT", str(free_port))
    assert "takes effect" not in lemonbus("reload")[2], "a reload leaves the flags of the start alone"
    write_settings(Settings(port=free_port), tmp_path)
    monkeypatch.setenv("LEMONBUS_PORT", str(free_port))
    code, _, err = lemonbus("reload")
    assert code == 3, "there is no other address"
    assert "name the former one: lemonbus reload --url URL" in err, "the server of another user may be there"


def test_a_reload_says_once_what_is_wrong_with_the_file(
    server: FakeServer, lemonbus: Ends, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("LEMONBUS_URL")
    monkeypatch.setenv("LEMONBUS_RUNTIME_DIR", str(tmp_path))
    file = tmp_path / "wrong.toml"
    file.write_text("ports = 1\n")
    monkeypatch.setenv("LEMONBUS_CONFIG", str(file))
    write_settings(Settings(port=urlsplit(server.url).port or 0), tmp_path)
    reason = f"{file}:1: unknown setting 'ports'"
    server.replies["POST", "/internal/reload"] = Reply({"error": {"message": reason}}, 400)
    code, _, err = lemonbus("reload")
    assert (code, err.count(reason)) == (1, 1)
    assert err.splitlines()[1] == f"lemonbus: asking the server at {server.url} anyway"
    assert err.splitlines()[-1].startswith(f"lemonbus: {reason}"), "the last line, which is an error of the journal"
    assert lemonbus("status")[2].count(reason) == 1
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        write_settings(Settings(port=taken.getsockname()[1]), tmp_path)
        assert lemonbus("status")[2].splitlines()[1] == "lemonbus: asking the server at http://127.0.0.1:13305 anyway"


def test_why_a_reload_of_the_service_failed_is_an_error_of_the_journal(free_port: int) -> None:
    with tempfile.TemporaryFile() as stream:
        status = os.fstat(stream.fileno())
        done = subprocess.run(
            [sys.executable, LAUNCH, "reload", "--url", f"http://127.0.0.1:{free_port}"],
            stderr=stream,
            env={**os.environ, "JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"},
            timeout=60,
            check=False,
        )
        stream.seek(0)
        assert done.returncode == 3
        assert stream.read().startswith(b"<3>lemonbus: cannot reach http://")
