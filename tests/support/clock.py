"""Programs that see another time of day: libfaketime, from the distribution's package."""

from __future__ import annotations

import pytest

from tests.support.debian_packages import library


def with_shifted_clock(seconds: int) -> list[str]:
    """Return the words before a command whose clock is fast by some seconds; what it starts has the same. Else skip the test.

    Only the time of day: what has passed since the start of the machine stays as it is, as on a machine whose clock is wrong.
    The kernel refuses ``time.sleep`` of Python then, which Ray needs and our processes do not (libfaketime 0.9.10).
    """
    found = library("libfaketime")
    if not found:
        pytest.skip("libfaketime is missing: python -m tests.support.debian_packages libfaketime")
    return ["env", f"LD_PRELOAD={found}", f"FAKETIME={seconds:+d}s", "FAKETIME_DONT_FAKE_MONOTONIC=1"]
