"""The commands of a document, run as they stand there, with a real server in place of the one that they mean."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.support.configuration_file import ConfiguredServer
from tests.support.server import ROOT

PATIENCE_S: Final = 120.0
PORT: Final = "13305"


def commands(document: str, chapter: str) -> list[str]:
    """Return the lines of the blocks ``sh`` of a chapter of a document, given by its path from the root."""
    text = (ROOT / document).read_text().split(f"\n## {chapter}\n")[1].split("\n## ")[0]
    lines = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    assert lines, f"the chapter {chapter} of {document} has no commands"
    return lines


def make_home(folder: Path) -> Path:
    """Make a home directory with the command ``lemonbus``; return it."""
    command = folder / "bin" / "lemonbus"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} {ROOT / "deploy" / "launch"} "$@"\n')
    command.chmod(0o755)
    return folder


def run_command(server: ConfiguredServer, home: Path, line: str) -> subprocess.CompletedProcess[str]:
    """Run a line in the home directory, with the address and the configuration of the server."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("LEMON", "XDG_", "HF_", "OLLAMA"))
    }
    variables = {
        **kept,
        "HOME": str(home),
        "PATH": f"{home / 'bin'}:{os.environ['PATH']}",
        "LEMONBUS_CONFIG": str(server.file),
        "COLUMNS": "200",
    }
    return subprocess.run(
        ["sh", "-c", line.replace(PORT, str(server.port))],
        cwd=home,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def run_commands(server: ConfiguredServer, home: Path, lines: Iterable[str]) -> list[str]:
    """Run lines that must succeed; return what each printed. One with ``--dry-run`` must leave the configuration as it is."""
    printed = []
    for line in lines:
        before = server.file.read_text()
        done = run_command(server, home, line)
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        if "--dry-run" in line:
            assert server.file.read_text() == before
        printed.append(done.stdout)
    return printed
