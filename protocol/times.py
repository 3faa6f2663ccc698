"""Times in messages: ages and durations, because a receiver's clock need not be the sender's.

What happened is sent with its age, and the receiver subtracts that from its own clock when the message arrives. A
message that waits on its way thus makes it look younger.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Final, TypeAlias

from msgspec import Meta

Age: TypeAlias = Annotated[float, "seconds ago, when the message was sent"]
Seconds: TypeAlias = Annotated[float, "seconds that something takes, took, or has left"]
UnixTime: TypeAlias = Annotated[float, "seconds since 1970: a date to show, or one that the operator set"]
UnixSecond: TypeAlias = Annotated[int, "whole seconds since 1970: a date to show"]
IdleTime: TypeAlias = Annotated[float, Meta(ge=0)]
"""Idle seconds until a model is unloaded. 0: as soon as it is idle; :data:`NEVER_UNLOADED`: never."""
NEVER_UNLOADED: Final = math.inf
"""The :data:`IdleTime` of a model that is never unloaded for being idle."""
_DAY_S: Final = 86_400


def configured_idle_time(seconds: float) -> float:
    """Return the :data:`IdleTime` that an operator means: in settings and in ``/v1/load``, 0 is never."""
    return seconds or NEVER_UNLOADED


def day_of(moment: UnixTime) -> str:
    """Return the day of a moment, in UTC: ``2031-05-01``."""
    return _day(int(moment // _DAY_S))


@lru_cache(maxsize=2)  # strftime takes as long as half of what else counts a request
def _day(days: int) -> str:
    return datetime.fromtimestamp(days * _DAY_S, UTC).strftime("%Y-%m-%d")
