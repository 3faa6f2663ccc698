"""The steps of an upgrade to the installed release, with their table, which `docs/lifecycles.md` shows."""

from __future__ import annotations

import enum


class UpgradeState(enum.Enum):
    """How far an upgrade is."""

    NONE = enum.auto()
    """No upgrade is under way."""
    IMPORTING = enum.auto()
    """The fork server of the installed release imports it."""
    PREPARED = enum.auto()
    """That fork server can fork the next supervisor."""
    HANDING_OVER = enum.auto()
    """The present supervisor was told to hand over."""
    TAKING_OVER = enum.auto()
    """A supervisor of the new release starts; the former fork server stays until it serves."""
    TRYING_AGAIN = enum.auto()
    """The first one was killed, and a second one starts: the last try."""


class UpgradeEvent(enum.Enum):
    """What happens in an upgrade."""

    BEGIN = enum.auto()
    IMPORTED = enum.auto()
    ORDER = enum.auto()
    """The present supervisor is told to hand over."""
    REPLACE = enum.auto()
    """The present supervisor has ended, in whatever way. The next one is of the new release."""
    TRY_AGAIN = enum.auto()
    """Something else has killed the supervisor of the new release."""
    SERVE = enum.auto()
    """A supervisor of the new release serves."""
    FAIL = enum.auto()
    """The fork server of the new release has ended, or its supervisor without having served."""
    FORMER_ENDED = enum.auto()
    """There is nothing left to return to: the new release must go on."""


_UPGRADE, _OF_UPGRADE = UpgradeState, UpgradeEvent

UPGRADE: dict[UpgradeState, dict[UpgradeEvent, UpgradeState]] = {
    _UPGRADE.NONE: {_OF_UPGRADE.BEGIN: _UPGRADE.IMPORTING},
    _UPGRADE.IMPORTING: {_OF_UPGRADE.IMPORTED: _UPGRADE.PREPARED, _OF_UPGRADE.FAIL: _UPGRADE.NONE},
    _UPGRADE.PREPARED: {
        _OF_UPGRADE.ORDER: _UPGRADE.HANDING_OVER,
        _OF_UPGRADE.REPLACE: _UPGRADE.TAKING_OVER,
        _OF_UPGRADE.FAIL: _UPGRADE.NONE,
    },
    _UPGRADE.HANDING_OVER: {_OF_UPGRADE.REPLACE: _UPGRADE.TAKING_OVER, _OF_UPGRADE.FAIL: _UPGRADE.NONE},
    _UPGRADE.TAKING_OVER: {
        _OF_UPGRADE.SERVE: _UPGRADE.NONE,
        _OF_UPGRADE.TRY_AGAIN: _UPGRADE.TRYING_AGAIN,
        _OF_UPGRADE.FAIL: _UPGRADE.NONE,
        _OF_UPGRADE.FORMER_ENDED: _UPGRADE.NONE,
    },
    _UPGRADE.TRYING_AGAIN: {
        _OF_UPGRADE.SERVE: _UPGRADE.NONE,
        _OF_UPGRADE.FAIL: _UPGRADE.NONE,
        _OF_UPGRADE.FORMER_ENDED: _UPGRADE.NONE,
    },
}

UNCONFIRMED = frozenset({UpgradeState.TAKING_OVER, UpgradeState.TRYING_AGAIN})
"""States in which the former release can still go on."""
