"""``GET /internal/settings``: the settings that this server runs with, and where each comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from gateway.api.common.routes import HttpCaller, Nothing, route
from protocol import RELEASE
from protocol.config.fields import setting_fields
from protocol.config.model_sections import section_values
from protocol.config.resolver import masked
from protocol.config.settings import read_origins, read_settings


class SettingInUse(msgspec.Struct):
    """A setting as the server uses it."""

    value: Any
    """Secrets are masked."""
    origin: str
    """A flag, a variable, ``FILE:LINE``, or ``default``."""


class SettingsAnswer(msgspec.Struct):
    """All settings of this server, with those of sections by their dotted names."""

    release: str
    settings: dict[str, SettingInUse]


@route("GET", "/internal/settings", changes=True)  # they name directories of this machine
def show_settings(caller: HttpCaller, _request: Nothing) -> SettingsAnswer:
    """Shows the settings of this server, and where each comes from."""
    # Another process may have accepted others since this one started.
    runtime = Path(caller.session.settings.runtime_dir)
    settings, origins = read_settings(runtime), read_origins(runtime)
    values = {name: masked(name, getattr(settings, name)) for name in setting_fields()} | section_values(settings)
    found = {name: SettingInUse(value, origins.get(name, "default")) for name, value in values.items()}
    return SettingsAnswer(RELEASE, found)
