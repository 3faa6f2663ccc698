"""A root booted with systemd as its first process, in a container that shares this machine's network."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import psutil

from tests.bare.root import installed
from tests.support.waiting import wait_for

BOOT_S = 60.0
END_S = 30.0
UP = ("starting", "running", "degraded")


def missing() -> str:
    """Return why no container can be started here, ``""`` if one can. Installs systemd-nspawn if it is available."""
    if not shutil.which("nsenter"):
        return "there is no nsenter"
    if not shutil.which("systemd-nspawn") and not installed("systemd-container"):
        return "systemd-nspawn is not available (apt-get install systemd-container)"
    return ""


class Container:
    """Use it as a context manager: leaving it ends everything in it."""

    def __init__(self, folder: Path, name: str, mounts: Mapping[str, str]) -> None:
        """Start nothing yet. ``name``: the name of the machine, in a form that systemd allows. ``mounts``: path here → path there."""
        self._mounts = [f"--bind-ro={path}:{place}" for path, place in mounts.items()]
        self._folder = folder
        self._name = name
        self._init: psutil.Process | None = None

    def __enter__(self) -> Self:
        # Killed tests leave no container behind.
        command = [
            "setpriv",
            "--pdeathsig",
            "TERM",
            "systemd-nspawn",
            "--quiet",
            "--register=no",
            "--keep-unit",
            "--boot",
            "--console=pipe",
        ]
        self._process = subprocess.Popen(
            [*command, *self._mounts, f"--machine={self._name}", "-D", self._folder],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            nspawn = psutil.Process(self._process.pid)
            self._init = wait_for(lambda: _inside(nspawn, 1), "the container has its first process", BOOT_S)
            # Do not wait until everything has started: a minimal system may never get that far.
            wait_for(lambda: self.run("systemctl", "is-system-running") in UP, "systemd answers", BOOT_S)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        self._process.send_signal(signal.SIGTERM)  # an orderly halt
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._init is not None and self._init.is_running():
            self._init.kill()  # the container's first process: all others end with it
        shutil.rmtree(f"/run/systemd/nspawn/propagate/{self._name}", ignore_errors=True)

    def run(self, *words: str) -> str:
        """Run a program of the container in it, as root; return what it prints."""
        assert self._init, "it was not started"
        enter = ["nsenter", "-t", str(self._init.pid), "-m", "-p", "-u", "-i", "-n", "-C", *words]
        return subprocess.run(enter, capture_output=True, text=True, check=False, timeout=300).stdout.strip()

    def processes(self) -> list[psutil.Process]:
        """Return all processes of the container, by this machine's pids."""
        assert self._init, "it was not started"
        return self._init.children(recursive=True)

    def process(self, pid: int) -> psutil.Process:
        """Return the process with this pid in the container."""
        assert self._init, "it was not started"
        found = _inside(self._init, pid)
        assert found, f"there is no process {pid} in the container"
        return found


def _inside(above: psutil.Process, pid: int) -> psutil.Process | None:
    """Return the process below another one with this pid in its own namespace."""
    for each in above.children(recursive=True):
        with contextlib.suppress(OSError):
            spaces = re.search(r"^NSpid:\t(.+)$", Path(f"/proc/{each.pid}/status").read_text(), re.MULTILINE)
            if spaces and spaces[1].split()[1:] == [str(pid)]:
                return each
    return None
