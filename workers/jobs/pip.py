"""Runs pip in its own folder, ends it with this process, and explains its failures."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from workers.jobs.errors import SourceError

_PROGRESS_POLL_S: Final = 0.2
"""Seconds between two looks at pip's progress."""

# If pip would outlive this process, the kernel kills it. Not `setpriv`: it is not everywhere.
_RUN: Final = """
import ctypes, os, runpy, sys
ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
if os.getppid() != int(sys.argv.pop(1)):
    sys.exit(1)
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""

_DISK_FULL: Final = "the disk is full"
_UNREACHABLE: Final = re.compile(
    r"NewConnectionError|ConnectTimeout|NameResolutionError|name resolution|Max retries|Connection refused"
    r"|ProxyError|ReadTimeout|Read timed out|ConnectionResetError|SSLError",
    re.IGNORECASE,
)
_UNKNOWN: Final = re.compile(r"(?:No matching distribution found for|requirement) ([\w.-]+==[\w.+!-]+)", re.IGNORECASE)
_OWN_VARIABLE_PREFIXES: Final = ("LEMONBUS_", "LEMONADE_")
_NOT_HERE: Final = frozenset({"PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_REQUIRE_VIRTUALENV"})


def run(words: list[str], staging: Path, look: Callable[[], None]) -> None:
    """Run ``pip WORDS`` with its temporary files in ``staging``, calling ``look`` meanwhile.

    Raises a :class:`SourceError` with the reason for clients, and pip's output as its detail.
    """
    log = staging / "pip.log"
    command = [sys.executable, "-I", "-c", _RUN, str(os.getpid()), *words]
    command += ["--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
    ours = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_OWN_VARIABLE_PREFIXES) and name not in _NOT_HERE
    }
    environment = {"PIP_RETRIES": "1", **ours, "TMPDIR": str(staging)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=staging
        )
        try:
            while _is_running(process):
                look()
        finally:
            process.kill()
            process.wait()
    if process.returncode:
        text = log.read_text("utf-8", "replace")
        reason = _reason(process.returncode, text)
        raise SourceError(reason, text, full=reason == _DISK_FULL)


def _is_running(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(_PROGRESS_POLL_S)
    except subprocess.TimeoutExpired:
        return True
    return False


def _reason(code: int, output: str) -> str:
    if code < 0:
        return f"pip was killed by signal {-code}"
    if "No module named pip" in output:
        return "this Python has no pip"
    if _UNREACHABLE.search(output):
        return "the package index cannot be reached"
    if "No space left" in output:
        return _DISK_FULL
    if "DO NOT MATCH THE HASHES" in output:
        return "a wheel is not the one that was pinned (its sha256 differs)"
    unknown = _UNKNOWN.search(output)
    return f"the package index has no {unknown[1]}" if unknown else f"pip failed with exit code {code}"
