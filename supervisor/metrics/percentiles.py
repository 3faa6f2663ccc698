"""Percentiles of a few observations. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest observation that at least ``share`` (0 to 1) of them do not exceed. ``ordered``: at least one."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
