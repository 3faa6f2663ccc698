"""Runs the blocks of a page of docs/clients in order, in one shell and a home directory of their own.

The blocks run as the page has them, with three exceptions: the ports of :data:`PORTS` are others, the chapter ``Install`` was done before, and
the variables of :data:`OFFLINE` keep clients from other machines. Programs of one language that follow each other are one program, so that a block
may use what an earlier one made.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.clients.client_packages import Programs
from tests.clients.client_page import Block, ClientPage
from tests.support.ports import free_port
from tests.support.server import ROOT

PORTS: Final = ("13305", "4000")
"""Of lemonbus; of a client that is a server itself."""
OFFLINE: Final = {
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "NO_PROXY": "127.0.0.1,localhost",
    "HF_HUB_OFFLINE": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "DO_NOT_TRACK": "1",
}
"""Nothing listens on that port, so that each request to another machine fails at once."""
_MARK: Final = "\x1e"
_PROGRAMS: Final = {
    "python": ("python", ".py", "print({}, flush=True)\n"),
    "js": ("node", ".mjs", "console.log({});\n"),
}
"""Language → its program, the end of a file's name, and a line that prints."""


def run_page(page: ClientPage, programs: Programs, port: int, home: Path, patience_s: float) -> dict[str, str]:
    """Run a page's blocks with a server on ``port``. Return section → what it printed on stdout; fail if a command fails."""
    folder = home / "work"
    folder.mkdir(parents=True)
    script = "set -e\n" + "\n".join(_script(page.blocks, folder, home))
    for documented, actual in zip(PORTS, (port, free_port()), strict=True):
        for file in [each for each in home.rglob("*") if each.is_file()]:
            file.write_text(_with_port(file.read_text(), documented, actual))
        script = _with_port(script, documented, actual)
    _add_programs(home, folder, programs)
    printed = _run(script, _environment(home, programs, port), folder, patience_s)
    sections = dict.fromkeys(page.sections, "")
    for part in printed.split(_MARK)[1:]:
        name, text = part.split("\n", 1)
        sections[name] += text
    return sections


def _with_port(text: str, documented: str, actual: int) -> str:
    return re.sub(rf"(?<!\d){documented}(?!\d)", str(actual), text)


def _script(blocks: list[Block], folder: Path, home: Path) -> list[str]:
    """Write the files of a page; return the lines of the shell."""
    lines: list[str] = []
    program: tuple[str, Path] | None = None
    for number, block in enumerate(blocks):
        if block.title:
            path = folder / block.title.replace("~", str(home))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        elif block.language in _PROGRAMS:
            command, suffix, printing = _PROGRAMS[block.language]
            if not program or program[0] != block.language:
                program = block.language, folder / f"block{number}{suffix}"
                lines.append(f"{command} {program[1].name}")
            with program[1].open("a") as file:
                file.write(printing.format(f'"\\x1e{block.section}"') + block.text)
        elif block.runs:
            program = None
            lines += [f"printf '\\036%s\\n' {shlex.quote(block.section)}", block.text]
    return lines


def _add_programs(home: Path, folder: Path, programs: Programs) -> None:
    own = home / "bin"
    own.mkdir()
    (own / "python").write_text(f'#!/bin/sh\nexec {programs.python} "$@"\n')
    (own / "lemonbus").write_text(f'#!/bin/sh\nexec {sys.executable} {ROOT / "deploy" / "launch"} "$@"\n')
    for each in own.iterdir():
        each.chmod(0o755)
    if programs.modules:
        (folder / "node_modules").symlink_to(programs.modules)


def _environment(home: Path, programs: Programs, port: int) -> Mapping[str, str]:
    path = [home / "bin", *programs.folders, os.environ["PATH"]]
    return {
        **OFFLINE,
        "PATH": os.pathsep.join(map(str, path)),
        "HOME": str(home),
        "TMPDIR": str(home),
        "LANG": "C.UTF-8",
        "LEMONBUS_URL": f"http://127.0.0.1:{port}",
    }


def _run(script: str, environment: Mapping[str, str], folder: Path, patience_s: float) -> str:
    """Run the script; end what it left running."""
    out, err = folder.parent / "stdout", folder.parent / "stderr"
    with out.open("w") as stdout, err.open("w") as stderr:
        shell = subprocess.Popen(
            [shutil.which("sh") or "/bin/sh", "-c", script],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        try:
            code: int | str = shell.wait(patience_s)
        except subprocess.TimeoutExpired:
            code = f"no end within {patience_s:g} s"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
    printed = out.read_text(errors="replace")
    assert code == 0, f"{code}: {printed[-3000:]}\n{err.read_text(errors='replace')[-6000:]}"
    return printed
