"""How a gateway process prepares the standard library for greenlets, when the master has imported the application."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[3]
_PROGRAM = """
import socket, sys
from importlib import metadata

from gateway.server import gunicorn_master
from gateway.server.gunicorn_worker import GunicornWorker

lookups = []
metadata.entry_points = lambda **chosen: lookups.append(chosen) or ()
worker = GunicornWorker.__new__(GunicornWorker)
worker.sockets = []
worker.patch()
import gevent.socket
from gevent import monkey
assert socket.socket is gevent.socket.socket
assert all(monkey.is_module_patched(name) for name in ("threading", "time", "select", "subprocess"))
if lookups:
    sys.exit(f"plugins were looked for: {lookups}")

blocking = {
    id(value): f"{module}.{name}"
    for module in ("socket", "select", "time", "queue", "subprocess", "signal")
    for name, value in monkey.saved.get(module, {}).items()
    if callable(value)
}
for name, module in sorted(sys.modules.items()):
    if name.partition(".")[0] in ("gateway", "protocol", "falcon", "gunicorn", "structlog", "zmq"):
        for value in list(vars(module).values()):
            if id(value) in blocking:
                print(name, blocking[id(value)])
"""


@pytest.fixture(scope="module")
def patched() -> subprocess.CompletedProcess[str]:
    """A process that has done both."""
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM], cwd=_ROOT, capture_output=True, text=True, timeout=60, check=False
    )


def test_no_installed_package_is_searched_for_plugins_of_gevent(patched: subprocess.CompletedProcess[str]) -> None:
    """The search takes a third of the time in which a gateway process starts."""
    assert (patched.returncode, patched.stderr) == (0, "")


def test_no_module_keeps_what_would_block_all_greenlets(patched: subprocess.CompletedProcess[str]) -> None:
    """The master imports before the workers patch, so a name that a module imported then stays unpatched."""
    assert patched.stdout.splitlines() == [
        "gateway.http.connections.client_socket socket.SocketType",
        "gateway.server.acceptor select.poll",
        "gateway.threads time.sleep",
        "protocol.runtime.log_output select.poll",
    ], "a socket that never waits, two waits of no time, and a wait of threads"
