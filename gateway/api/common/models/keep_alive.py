"""Ollama's ``keep_alive``: how long a model stays loaded after its last request. Pure."""

from __future__ import annotations

import math
import re
from typing import Final

from protocol.failures import invalid

KeepAlive = int | float | str
"""Seconds, or a duration such as ``5m`` or ``1h30m``; negative: forever."""
NEVER: Final = math.inf
"""The idle seconds of a model that is never unloaded for being idle."""

_LONGEST_S: Final = 1e12
_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_DURATION: Final = re.compile(rf"[+-]?(?:{_PART.pattern})+", re.ASCII)
_SECONDS: Final = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)", re.ASCII)
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def idle_seconds(keep_alive: KeepAlive | None) -> float | None:
    """Return the idle seconds after which the model is unloaded; 0: as soon as it is idle; None if unspecified.

    Raises ``invalid_request`` for anything that is not a duration.
    """
    if keep_alive is None:
        return None
    seconds = _parse(keep_alive) if isinstance(keep_alive, str) else keep_alive
    return NEVER if seconds < 0 or seconds > _LONGEST_S else float(seconds)


def _parse(text: str) -> float:
    if len(text) <= 64 and _SECONDS.fullmatch(text):
        return float(text)
    if len(text) > 64 or not _DURATION.fullmatch(text):
        message = "`keep_alive` must be a number of seconds or a duration such as 5m; 0 unloads, -1 keeps"
        raise invalid(message, "keep_alive")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    return -seconds if text.startswith("-") else seconds
