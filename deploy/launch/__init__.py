"""The installed package ``lemonbus``: finds the packages, makes them importable, and runs the command line.

The packages are in ``lemonbus/packages`` in a wheel, and in the root of the checkout otherwise. That folder goes first
on the import path, of child processes too: neither PyPI's ``supervisor`` nor a folder of that name in the working
directory can be imported instead. Nothing else belongs here: no options, no server code.
"""

import os
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
PACKAGES_DIR = _HERE / "packages" if (_HERE / "packages").is_dir() else _HERE.parent.parent


def main() -> int:
    """Run the command line and return its exit code."""
    packages_dir = str(PACKAGES_DIR)
    sys.path.insert(0, packages_dir)
    before = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part not in ("", packages_dir)]
    os.environ["PYTHONPATH"] = os.pathsep.join([packages_dir, *before])
    os.environ["PYTHONSAFEPATH"] = "1"
    from gateway.cli.main import main as terminal  # noqa: PLC0415 - only now it can be found

    return terminal()
