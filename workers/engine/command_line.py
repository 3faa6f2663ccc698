"""An engine's command line for administrators: without secrets, including those that an operator put there. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

HIDDEN: Final = "***"
_SECRET_FLAG: Final = re.compile(r"--?[\w-]*(?:key|token|secret|password|passwd)\b(?!-)", re.IGNORECASE)
"""``--api-key``, but not ``--api-key-file``, whose value is a path and not secret."""


def without_secrets(command: Sequence[str]) -> list[str]:
    """Return the command with ``***`` instead of the values of flags that are named after a secret."""
    shown: list[str] = []
    hide = False
    for word in command:
        name, equals, _ = word.partition("=")
        is_secret = _SECRET_FLAG.fullmatch(name) is not None
        if hide:
            shown.append(HIDDEN)
        elif is_secret and equals:
            shown.append(f"{name}={HIDDEN}")
        else:
            shown.append(word)
        hide = not hide and is_secret and not equals
    return shown
