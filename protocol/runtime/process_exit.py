"""Ends a process at once, when it has closed what it must, without the interpreter's own clean-up.

Taking apart the modules of a worker or a gateway costs a quarter of the processor time of its start, and the kernel
frees the memory anyway.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def exit_immediately(code: int) -> NoReturn:
    """End this process now. Nothing it still computes may be needed."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
