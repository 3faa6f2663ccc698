"""``python -m lemonbus``, or ``python deploy/launch`` in a checkout that was never installed."""

import runpy
import sys
from pathlib import Path

sys.exit(runpy.run_path(str(Path(__file__).with_name("__init__.py")))["main"]())
