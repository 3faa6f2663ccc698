"""The lemonbus servers that have passed a request on, from its header ``Via``, so that no request goes round in a circle. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

_SERVER: Final = re.compile(r"(?<![\w-])lemonbus-[0-9a-f]{6,64}(?![\w-])")
_MOST: Final = 32


def servers_passed(env: Mapping[str, Any]) -> list[str]:
    """Return them in their order, as they named themselves. A proxy between them may have added other names."""
    return _SERVER.findall(env.get("HTTP_VIA") or "")[:_MOST]
