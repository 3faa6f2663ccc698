"""Messages about newer files and programs: which downloaded models and installed backends have an update."""

from __future__ import annotations

import msgspec

from protocol.messages.calls import repeated_call
from protocol.messages.model_files import CheckpointSource
from protocol.wire.envelope import control_message


@repeated_call
class CheckUpdates(msgspec.Struct, frozen=True):
    """→ :class:`UpdatesReport`, when a job has asked the hub. ``offline`` if the setting forbids that."""

    number: int


class BackendUpdate(msgspec.Struct, frozen=True):
    """An installed backend whose pinned release differs from it."""

    backend: str
    """``RECIPE:BACKEND``."""
    installed: str
    """Its version; empty if that is unknown."""


class UpdatesReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is newer elsewhere than here."""

    models: list[str]
    """Registered names of models whose files at the hub differ from those here."""
    failed: dict[str, str] = {}
    """Model → why it could not be checked, as a sentence."""
    unchecked: list[str] = []
    """Downloaded models that come from no hub: packages, whose files never change, and models of a recipe's own program."""
    backends: list[BackendUpdate] = []


@control_message
class StartUpdateCheck(msgspec.Struct, frozen=True):
    """Supervisor → job: compare the files of these models with those at the hub."""

    models: dict[str, CheckpointSource]
    """Registered name → where it came from, with its parts."""


@control_message
class UpdatesChecked(msgspec.Struct, frozen=True, omit_defaults=True):
    """Job → supervisor: the result."""

    models: list[str] = []
    failed: dict[str, str] = {}
