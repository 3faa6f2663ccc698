"""The installed package ``lemonbus``: it finds the house, makes it importable, and opens the terminal.

The house is ``lemonbus/house`` in a wheel, and the root of the checkout otherwise. It goes first on the import
path, of the children too, and they ignore the folder they are started in: neither PyPI's ``supervisor`` nor a
folder of that name can be taken for ours.
"""

import os
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
HOUSE = _HERE / "house" if (_HERE / "house").is_dir() else _HERE.parent.parent


def main() -> int:
    """Run the command line and return its exit code."""
    house = str(HOUSE)
    sys.path.insert(0, house)
    before = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part not in ("", house)]
    os.environ["PYTHONPATH"] = os.pathsep.join([house, *before])
    os.environ["PYTHONSAFEPATH"] = "1"
    from gateway.cli.main import main as terminal  # noqa: PLC0415 - only now it can be found

    return terminal()
