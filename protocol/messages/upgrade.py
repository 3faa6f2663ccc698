"""The call that lets the release which is installed now take over, and its report."""

from __future__ import annotations

import msgspec

from protocol.wire.envelope import control_message


@control_message
class UpgradeServer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Gateway → supervisor: let a supervisor of the installed release take over → :class:`UpgradeReport` by that one.

    ``internal_error`` says that it could not be started, and that the present release goes on.
    """

    number: int
    begun: bool = False
    """Sent again to the next supervisor: it says what came of the call."""


class UpgradeReport(msgspec.Struct, frozen=True):
    """What serves now."""

    release: str
    pid: int
    """Of the supervisor."""
