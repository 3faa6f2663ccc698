"""Programs that see another time of day: libfaketime, from the distribution's package."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.debian_packages import library

_SLEEP = """
import select
import time

time.sleep = lambda seconds: select.select([], [], [], seconds) and None
"""
"""With libfaketime 0.9.10 the kernel refuses ``time.sleep``, if the time since the start of the machine stays right."""


def shifted_clock(seconds: int, folder: Path) -> dict[str, str]:
    """Return the variables of a program whose clock is fast by some seconds; what it starts has the same. Else skip the test.

    Only the time of day: what has passed since the start of the machine stays as it is, as on a machine whose clock is wrong.
    ``folder`` gets a file that programs in Python need.
    """
    found = library("libfaketime")
    if not found:
        pytest.skip("libfaketime is missing: python -m tests.support.debian_packages libfaketime")
    (folder / "sitecustomize.py").write_text(_SLEEP)
    shift = {"LD_PRELOAD": found, "FAKETIME": f"{seconds:+d}s", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    return {**shift, "PYTHONPATH": str(folder)}
