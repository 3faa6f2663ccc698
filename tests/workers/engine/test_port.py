"""The reserved port of an engine: the engine can listen on it, and no request goes to another user's program."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from workers.engine.port import ReservedPort

STRANGER = 65534
LISTEN = """
import os, socket, sys
os.setuid(int(sys.argv[1]))
listener = socket.socket()
for option in sys.argv[3:]:
    listener.setsockopt(socket.SOL_SOCKET, getattr(socket, option), 1)
try:
    listener.bind(("127.0.0.1", int(sys.argv[2])))
    listener.listen()
except OSError as problem:
    print(problem.strerror, flush=True)
else:
    print("listens", flush=True)
    sys.stdin.read()
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user, which only root can be")


@pytest.fixture(params=[True, False], ids=["shared", "not shared"])
def port(request: pytest.FixtureRequest) -> Iterator[ReservedPort]:
    port = ReservedPort(shared=request.param)
    yield port
    port.release()


def listening(user: int, port: ReservedPort, *options: str) -> subprocess.Popen[str]:
    """Start a program that tries to listen and reports the result."""
    words = [sys.executable, "-c", LISTEN, str(user), str(port.number), *options]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def outcome_of(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    return program.stdout.readline().strip()


def test_the_engine_listens(port: ReservedPort) -> None:
    options = ["SO_REUSEPORT"] if port.is_listening() else ["SO_REUSEADDR"]
    with listening(os.geteuid(), port, *options) as engine:
        assert outcome_of(engine) == "listens"
        assert port.is_listening()
        engine.communicate()


@needs_root
@pytest.mark.parametrize("options", [["SO_REUSEADDR"], ["SO_REUSEPORT"], ["SO_REUSEADDR", "SO_REUSEPORT"]])
def test_another_user_gets_no_request(port: ReservedPort, options: list[str]) -> None:
    shared = port.is_listening()
    with listening(STRANGER, port, *options) as stranger:
        answer = outcome_of(stranger)
        if shared:
            assert answer == "Address already in use"
        elif answer == "listens":
            with pytest.raises(
                PermissionError, match=f"a program of user {STRANGER} listens on its port {port.number}"
            ):
                port.is_listening()
        else:
            assert not port.is_listening()
        stranger.communicate()


@pytest.mark.skipif(not Path("/proc/net/tcp6").exists(), reason="a kernel without IPv6")
def test_a_listener_at_an_address_of_ipv6_is_seen() -> None:
    port = ReservedPort(shared=False)
    try:
        with socket.socket(socket.AF_INET6) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("::ffff:127.0.0.1", port.number))
            listener.listen()
            assert port.is_listening()
    finally:
        port.release()
