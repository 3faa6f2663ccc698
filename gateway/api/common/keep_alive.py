"""Ollama's ``keep_alive``: how long a model stays loaded after a request. Pure.

A model stays until another one needs its memory, so only zero has an effect: it unloads the model after the answer.
"""

from __future__ import annotations

import re
from typing import Final

from protocol.failures import invalid

KeepAlive = int | float | str
"""Seconds, or a duration such as ``5m`` or ``1h30m``; negative: for ever."""

_DURATION: Final = re.compile(r"[+-]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+", re.ASCII)
_SECONDS: Final = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)", re.ASCII)
_NONZERO_DIGIT: Final = re.compile(r"[1-9]")


def unloads(keep_alive: KeepAlive | None) -> bool:
    """Return whether the model is to be unloaded after the answer; raises ``invalid_request`` for what is no duration."""
    if keep_alive is None:
        return False
    if not isinstance(keep_alive, str):
        return keep_alive == 0
    if len(keep_alive) > 64 or not (_DURATION.fullmatch(keep_alive) or _SECONDS.fullmatch(keep_alive)):
        message = "`keep_alive` must be a number of seconds or a duration such as 5m; 0 unloads, -1 keeps"
        raise invalid(message, "keep_alive")
    return not _NONZERO_DIGIT.search(keep_alive)
