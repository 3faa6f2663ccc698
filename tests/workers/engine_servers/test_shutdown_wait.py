"""The end of our engine servers: a signal that arrives as soon as they are ready is an orderly end."""

from __future__ import annotations

import subprocess
import sys

SERVER = """
import os, signal
from workers.engine_servers.shutdown_wait import open_parent_pidfd, wait_for_shutdown
wait_for_shutdown(open_parent_pidfd(), lambda: os.kill(os.getpid(), signal.{name}))
print("ended in order")
"""


def test_a_signal_at_the_moment_of_readiness_is_not_lost() -> None:
    for name in ("SIGTERM", "SIGINT"):
        command = [sys.executable, "-c", SERVER.format(name=name)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "ended in order\n", "")
