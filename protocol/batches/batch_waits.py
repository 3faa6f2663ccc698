"""Why batches wait, as the job that works batches off tells gateways: a file of the runtime directory, batch → reason.

It is not beside the batches: it must be written while their disk is full, and ends with the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from protocol import small_files
from protocol.failures import DECODE_ERRORS

_FILE: Final = "batch-waits"


def write(runtime: Path, reasons: Mapping[str, str]) -> None:
    """Replace what is known; raises OSError."""
    small_files.replace_private(runtime / _FILE, msgspec.json.encode(reasons))


def read(runtime: Path) -> dict[str, str]:
    """Return the batches that wait, with the reason of each; none if that is not known."""
    try:
        return msgspec.json.decode(small_files.read_small_file(runtime / _FILE), type=dict[str, str])
    except (OSError, *DECODE_ERRORS):
        return {}
