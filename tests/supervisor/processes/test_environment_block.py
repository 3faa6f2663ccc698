"""A process that shows another command line and another environment in /proc than those it was started with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.keeper.keeper import FORK_SERVER_COMMAND
from supervisor.processes import environment_block, fork_orders
from tests.support import processes

FILLER = "x" * 500
SHOWS = """
import ctypes, os, sys
from supervisor.processes import environment_block
identity = {"ROLE": sys.argv[1]}
environment = {**identity, "OTHER": sys.argv[2], "LAST": "z"}
os.environ.clear()
os.environ.update(environment)
shown = environment_block.show([sys.executable, "-m", "its.module"], identity, environment)
seen = ctypes.CDLL(None)
seen.getenv.restype = ctypes.c_char_p
print(shown, seen.getenv(b"LAST"), seen.getenv(b"FILLER"), flush=True)
sys.stdin.read()
"""


def shown(role: str, other: str) -> tuple[str, tuple[str, ...], bytes]:
    """Return what the process prints, its command line, and its environment in /proc."""
    with subprocess.Popen(
        [sys.executable, "-c", SHOWS, role, other],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"FILLER": FILLER, "PYTHONPATH": str(Path.cwd())},
    ) as process:
        assert process.stdout is not None
        output = process.stdout.readline().strip()
        seen = processes.look(process.pid)
        assert seen is not None
        environment = Path(f"/proc/{process.pid}/environ").read_bytes()
        process.communicate()
    return output, seen.words, environment


def test_a_process_shows_what_it_says() -> None:
    output, words, environment = shown("worker", "ä")
    assert output == "True b'z' None", "C code also sees only the new environment"
    assert words == (sys.executable, "-m", "its.module")
    assert environment.rstrip(b"\0") == "ROLE=worker\0OTHER=ä\0LAST=z".encode()
    assert environment_block.parse(environment) == {"ROLE": "worker", "OTHER": "ä", "LAST": "z"}


def test_only_the_identity_of_a_too_large_environment_is_shown() -> None:
    output, _, environment = shown("worker", "y" * 2 * len(FILLER))
    assert output == "True b'z' None"
    assert environment_block.parse(environment) == {"ROLE": "worker", "LAST": "z"}


def test_nothing_is_changed_if_the_identity_does_not_fit() -> None:
    output, words, environment = shown("w" * 2 * len(FILLER), "y")
    assert output == "False b'z' None"
    assert words[1] == "-c"
    assert environment_block.parse(environment)["FILLER"] == FILLER


@pytest.mark.parametrize("module", fork_orders.IMPORTS)
def test_every_forked_module_fits_in_the_place_of_the_fork_servers_command(module: str) -> None:
    program = "/bin/python3"
    size = len("".join(f"{word}\0" for word in (program, *FORK_SERVER_COMMAND[1:])))
    words = environment_block.fitting([program, "-m", module], size)
    assert words.decode().split("\0") == [program, "-m", module, ""]


@pytest.mark.parametrize("environment", [{}, {"A": ""}, {"A": "b=c\nd", "É": os.fsdecode(b"\xff")}])
def test_what_is_packed_is_read(environment: dict[str, str]) -> None:
    assert environment_block.parse(environment_block.pack(environment)) == environment
