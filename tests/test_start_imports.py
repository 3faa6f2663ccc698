"""What processes do not import when they start: each of these modules would cost milliseconds of every start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cluster_modules import of_cluster

ROOT = Path(__file__).resolve().parent.parent
SERVER_LIBRARIES = "falcon gevent gunicorn h11 multipart psutil zmq"
COMMANDS = [path.stem for path in (ROOT / "gateway" / "cli" / "commands").glob("[a-z]*.py")]
EVERYWHERE = "asyncio greenlet huggingface_hub logging multiprocessing ray rich structlog.stdlib"
JOBS = f"{EVERYWHERE} email gevent psutil ssl"
UNWANTED = {
    "workers.jobs.describe": f"{JOBS} requests subprocess zipfile",
    "workers.jobs.install": f"{JOBS} requests tarfile zipfile",
    "workers.jobs.pull": f"{JOBS} requests",
    "workers.jobs.remove": f"{JOBS} requests zipfile",
    "supervisor.lifecycle.startup": f"{EVERYWHERE} ctypes psutil zipfile",
    "supervisor.reload.resolution": f"{EVERYWHERE} ctypes psutil zipfile",
    "workers": f"{EVERYWHERE} ctypes protocol.config.fields psutil requests tomllib",
}
"""Module that is run → what it may not have imported when it looks for its environment, which is missing here."""
STARTS = {
    "a gateway": "gateway.server.gunicorn_master gateway.app",
    "a job": "workers.jobs.describe workers.jobs.pull workers.jobs.read_devices",
    "a supervisor": "supervisor.lifecycle.main",
    "a worker": "workers.worker.main",
    "the fork server": "supervisor.lifecycle.fork_server",
}
"""Process → the modules that it imports when it starts."""
_PROGRAM = """
import os, sys

for line in sys.argv[1:]:
    module, *unwanted = line.split()
    if os.fork() == 0:
        import runpy
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        except (KeyError, SystemExit):
            print(module, *(name for name in unwanted if name in sys.modules), flush=True)
        os._exit(0)
    os.wait()
"""


def test_a_process_imports_little_that_it_may_not_need() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *(f"{module} {unwanted}" for module, unwanted in UNWANTED.items())],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("LEMONBUS_")},
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines() == list(UNWANTED)


@pytest.mark.parametrize("process", STARTS)
def test_a_server_on_one_machine_imports_nothing_of_a_cluster(process: str) -> None:
    code = f"import sys; {'; '.join(f'import {module}' for module in STARTS[process].split())}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=60, check=True
    )
    imported = done.stdout.split()
    assert not of_cluster(imported), f"{process} imports what only a cluster needs"
    assert len(imported) > 100, "it has imported what it runs"


def test_the_command_line_imports_no_library_of_the_server() -> None:
    """It imports declarations of routes, beside which their handlers are."""
    code = (
        f"import sys; {'; '.join(f'import gateway.cli.commands.{command}' for command in COMMANDS)};"
        f" print([name for name in {SERVER_LIBRARIES.split()} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"
