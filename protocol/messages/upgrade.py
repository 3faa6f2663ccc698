"""The call that lets the installed release take over, and its report."""

from __future__ import annotations

import msgspec

from protocol.messages.calls import Repetition, call_message
from protocol.messages.peers import LoadedCode


class UpgradeReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The release that serves now."""

    release: str = ""
    """Empty: the new supervisor speaks another version of the protocol, so the gateway could not ask it."""
    pid: int = 0
    """Of the supervisor."""


@call_message(
    # The supervisor that has taken over because of this call is asked for the result.
    Repetition(change=lambda call: msgspec.structs.replace(call, begun=True), replaced=UpgradeReport)
)
class UpgradeServer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Gateway → supervisor: let the installed release take over → :class:`UpgradeReport`, sent by its supervisor.

    ``internal_error``: it could not be started, and the present release goes on.
    """

    number: int
    begun: bool = False
    """Report the result of the last upgrade: the call is sent again to the next supervisor."""
    replaces: LoadedCode | None = None
    """The release that ran when the call was made.

    If the supervisor that gets the call still runs it, the upgrade has not happened: unless a failure is known, the
    supervisor begins the upgrade, or joins one in progress. None: begin nothing.
    """
