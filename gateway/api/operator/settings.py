"""``GET /internal/settings``: the settings that this server runs with, and where each comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Final

import falcon
import msgspec

from gateway.bus.session import SupervisorSession
from protocol import RELEASE
from protocol.config.fields import setting_fields
from protocol.config.model_sections import section_values
from protocol.config.resolver import masked
from protocol.config.settings import read_origins, read_settings

_DEFAULT: Final = "default"


class SettingInUse(msgspec.Struct):
    """A setting as the server uses it."""

    value: Any
    """Secrets are masked."""
    origin: str
    """A flag, a variable, ``FILE:LINE``, or ``default``."""


class SettingsAnswer(msgspec.Struct):
    """All settings of this server, those of its sections by their dotted names."""

    release: str
    settings: dict[str, SettingInUse]


class SettingsResource:
    """Shows the settings."""

    # It changes nothing. But settings name directories of this machine, so only an administrator may read them.
    changes: ClassVar[frozenset[str]] = frozenset({"GET"})

    def __init__(self, session: SupervisorSession) -> None:
        """Read them from the runtime directory of the session: another process may have accepted others since."""
        self._runtime = Path(session.settings.runtime_dir)

    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """Answer."""
        settings, origins = read_settings(self._runtime), read_origins(self._runtime)
        values = {name: masked(name, getattr(settings, name)) for name in setting_fields()} | section_values(settings)
        found = {name: SettingInUse(value, origins.get(name, _DEFAULT)) for name, value in values.items()}
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(SettingsAnswer(RELEASE, found))
