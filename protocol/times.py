"""Times in messages: ages and durations, because a receiver's clock need not be the sender's.

What happened is sent with its age, and the receiver subtracts that from its own clock when the message arrives. A
message that waits on its way thus makes it look younger.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

Age: TypeAlias = Annotated[float, "seconds ago, when the message was sent"]
Seconds: TypeAlias = Annotated[float, "seconds that something takes, took, or has left"]
UnixTime: TypeAlias = Annotated[float, "seconds since 1970: a date to show, or one that the operator set"]
UnixSecond: TypeAlias = Annotated[int, "whole seconds since 1970: a date to show"]
