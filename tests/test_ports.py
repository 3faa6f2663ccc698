"""Ports of tests: two processes never have the same one, however late each of them listens."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ports
from tests.support.ports import free_port

ROOT = Path(__file__).resolve().parent.parent
_PROGRAM = """
import sys
from tests.support import ports

ports.COUNT = 1
ports.FIRST = int(sys.argv[1])
ports._steps = iter([0])
try:
    print(ports.free_port())
except StopIteration:
    print("taken")
"""


def tried(port: int) -> str:
    """Return the port that another process gets if it only tries this one."""
    command = [sys.executable, "-c", _PROGRAM, str(port)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


def test_no_other_process_gets_a_port_that_was_given_away(monkeypatch: pytest.MonkeyPatch) -> None:
    # Ports that no other test asks for: it could get this one as soon as it is given back.
    monkeypatch.setattr(ports, "FIRST", ports.FIRST + ports.COUNT)
    monkeypatch.setattr(ports, "COUNT", 700)
    port = free_port()
    assert tried(port) == "taken"
    fcntl.lockf(ports._given_ports(), fcntl.LOCK_UN, 1, port)
    assert tried(port) == str(port)
