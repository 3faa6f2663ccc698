"""``python -m tests.bare``: the README's commands on a bare Debian, by an unprivileged user, with only what it names.

It makes a minimal Debian in its own folder (mmdebstrap), installs there what the README names, copies this working
tree, and runs ``make serve`` until a chat is answered, then ``make test``. What it starts runs in a process namespace
and ends with it. It needs root and Debian's packages. Without permission, it says so in one line and exits 0.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from pathlib import Path

from tests.bare import container, pipconfig, root, server, unit

ROOT = Path(__file__).resolve().parents[2]
README = re.compile(r"^    sudo apt-get install (.+)$", re.MULTILINE)


def main() -> int:
    """Run what was requested; return the exit status of the first command that failed, or 0."""
    asked = arguments()
    missing = root.missing()
    if missing:
        print(f"bare: not run: {missing}", flush=True)
        return 0
    packages = packages_of((ROOT / "README.md").read_text())
    for suite in asked.suites or ["bookworm"]:
        with tempfile.TemporaryDirectory(prefix="lemonbus-bare-", dir="/tmp") as folder:
            print(f"bare: a {suite} with {' '.join(packages)}", flush=True)
            machine = root.Root(Path(folder) / "root", pipconfig.of_host(), ROOT)
            problem = machine.make(suite, packages)
            if not problem and suite != (asked.suites or [suite])[-1] and machine.run("make .venv/.test"):
                problem = "its Python has no wheels of something"
            if not problem:
                return run(machine, asked)
            print(f"bare: {suite}: not run: {problem}", flush=True)
    return 0


def arguments() -> argparse.Namespace:
    """Return what the command line requests."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bare", description="Run the README's commands on a bare Debian."
    )
    parser.add_argument(
        "--suite",
        dest="suites",
        action="append",
        help="the Debian to make; if several: the first whose Python has wheels of everything",
    )
    parser.add_argument("--serve", action="store_true", help="run make serve, and have a chat answered")
    parser.add_argument("--test", metavar="ARGUMENTS", help="run make test, with more arguments: JOBS=2 TESTS='…'")
    parser.add_argument("--unit", action="store_true", help="run the systemd unit under a systemd of its own")
    return parser.parse_args()


def run(machine: root.Root, asked: argparse.Namespace) -> int:
    """Run in the root what was requested; return the exit status of the first command that failed, or 0."""
    code = server.check(machine) if asked.serve else 0
    if asked.test is not None and not code:
        code = machine.run(f"make test {asked.test}")
    if asked.unit and not code:
        problem = container.missing()
        if problem:
            print(f"bare: the systemd unit was not run: {problem}", flush=True)
        else:
            code = unit.check(machine)
    return code


def packages_of(readme: str) -> list[str]:
    """Return the packages that the README tells a newcomer to install."""
    named = README.search(readme)
    if named is None:
        raise SystemExit("README.md names no packages in a line 'sudo apt-get install …'")
    return named[1].split()


if __name__ == "__main__":
    os.environ.pop("MAKEFLAGS", None)
    sys.exit(main())
