"""How a gateway process prepares the standard library for greenlets."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]
_PROGRAM = """
import socket, sys, threading
from importlib import metadata

from gateway.server.gunicorn_worker import GunicornWorker

lookups = []
metadata.entry_points = lambda **chosen: lookups.append(chosen) or ()
worker = GunicornWorker.__new__(GunicornWorker)
worker.sockets = []
worker.patch()
import gevent.socket, gevent.monkey
assert socket.socket is gevent.socket.socket
assert all(gevent.monkey.is_module_patched(name) for name in ("threading", "time", "select", "subprocess"))
sys.exit(f"plugins were looked for: {lookups}" if lookups else 0)
"""


def test_no_installed_package_is_searched_for_plugins_of_gevent() -> None:
    """The search takes a third of the time in which a gateway process starts."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM], cwd=_ROOT, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.decode()) == (0, "")
