"""The call that lets the release which is installed now take over, and its report."""

from __future__ import annotations

import msgspec

from protocol.messages.peers import LoadedCode
from protocol.wire.envelope import control_message


@control_message
class UpgradeServer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Gateway → supervisor: let a supervisor of the installed release take over → :class:`UpgradeReport` by that one.

    ``internal_error`` says that it could not be started, and that the present release goes on.
    """

    number: int
    begun: bool = False
    """Say what came of the last upgrade. So the call is sent again to the next supervisor."""
    replaces: LoadedCode | None = None
    """What ran when the call was made. A supervisor that runs this has not come by the upgrade that was asked for: if it knows
    of no failure, it begins one, or joins one that was begun. None: begin nothing."""


class UpgradeReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """What serves now."""

    release: str = ""
    """Empty: a supervisor has taken over that speaks another version of the protocol, so the gateway could not ask it."""
    pid: int = 0
    """Of the supervisor."""
