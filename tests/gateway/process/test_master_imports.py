"""What the gunicorn master imports for all of its workers, before it forks them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]
_PROGRAM = """
import os, sys

from gateway.server import gunicorn_master
from gevent._hub_local import get_hub_if_exists

assert "gateway.app" in sys.modules, "each worker would import the application again"
assert get_hub_if_exists() is None, "a hub must not be forked"
assert len(os.listdir("/proc/self/task")) == 1, "threads would be missing in a forked process"

from protocol import ids

read, write = os.pipe()
for _ in range(2):
    if os.fork() == 0:
        os.write(write, ids.request_label("").encode() + b" ")
        os._exit(0)
    os.wait()
assert len(set(os.read(read, 1000).split())) == 2, "two processes would give their requests the same ids"
"""


def test_the_master_has_imported_what_its_workers_need_and_can_be_forked() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], cwd=_ROOT, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.decode()) == (0, "")
