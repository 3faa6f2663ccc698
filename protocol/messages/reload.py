"""The call that reads the configuration again, and its report."""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from protocol.config.settings import LogLevel
from protocol.messages.calls import Repetition, call_message, repeated_call


class SettingEffect(enum.StrEnum):
    """When a changed setting takes effect."""

    NOW = "now"
    """At once, also for what already runs."""
    GATEWAYS = "gateways restart gracefully"
    """When the processes that serve HTTP have been replaced. Requests end in the processes that accepted them."""
    LISTENER = "a new listener is opened"
    """At another address. Existing connections end at the old one."""
    NEW_LOADS = "new loads only"
    """For models that are loaded from now on."""
    MODEL_RELOAD = "the model is reloaded when idle"
    NEXT_START = "at the next start of the server"


@call_message(
    # Its report says that there may have been more changes, which a dry run does not make.
    Repetition(change=lambda call: msgspec.structs.replace(call, repeated=not call.dry_run))
)
class ReloadSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """Gateway → supervisor: read the configuration again → :class:`ReloadReport`. ``dry_run``: only say what would change.

    A wrong configuration is refused as a whole with ``invalid_request``, and changes nothing.
    """

    number: int
    dry_run: bool = False
    repeated: bool = False
    """Whether a supervisor that has ended may have carried it out already."""


@repeated_call
class SetLogLevel(msgspec.Struct, frozen=True):
    """Gateway → supervisor: every process of the server is to log from this level on → no report.

    The settings have it from then on, until they are read again or the server is started again.
    """

    number: int
    level: LogLevel


class SettingChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """A setting whose value has changed. Secrets are masked."""

    setting: str
    """``max_loaded_models``, or with its section: ``models.NAME.ttl``."""
    old: Any
    """The value used now; None for an entry of a new section."""
    new: Any
    """The value in the configuration; None if it was removed."""
    effects: list[SettingEffect]
    origin: str = ""
    """Where the new value comes from: ``FILE:LINE``, a variable or a flag; empty for a default."""
    models: list[str] = []
    """The loaded models that are reloaded because of it."""


class ReloadReport(msgspec.Struct, frozen=True):
    """What a reload changes, or would change."""

    applied: bool
    changes: list[SettingChange]
    warnings: list[str] = []
    repeated: bool = False
    """Whether a supervisor that has ended may have applied more changes."""
