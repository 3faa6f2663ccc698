"""``lemonbus upgrade`` as an operator runs it."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.gateway.cli.terminal_process import LAUNCH
from tests.support.server import LemonbusServer


def upgrade(server: LemonbusServer) -> tuple[int, str, str]:
    """Run it; return its exit code and its output."""
    command = [sys.executable, str(LAUNCH), "upgrade", "--url", f"http://127.0.0.1:{server.port}"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LEMONBUS_")}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    return ended.returncode, ended.stdout, ended.stderr
