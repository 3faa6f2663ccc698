"""A server with a configuration file that a test changes while the server runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec

from protocol.config.config_file import ConfigFile
from protocol.config.resolver import resolve
from protocol.config.settings import SECTIONS, Settings
from tests.support.server import LemonbusServer


class ConfiguredServer(LemonbusServer):
    """Its settings are in ``lemonbus.toml`` of its home; ``sections``: the end of that file."""

    def __init__(self, *models: str, sections: str = "", **settings: Any) -> None:
        self._sections = sections
        super().__init__(*models, **settings)

    @property
    def file(self) -> Path:
        return self.home / "lemonbus.toml"

    def _spawn(self) -> Any:
        self.configure()
        command_line = {"config": str(self.file), "folder": str(self.home)}
        self._environment |= {"LEMONBUS_COMMAND_LINE": msgspec.json.encode(command_line).decode()}
        return super()._spawn()

    def configure(self, sections: str | None = None, **settings: Any) -> None:
        """Write the file again, with these settings changed. ``sections``: its new end."""
        self._sections = self._sections if sections is None else sections
        self.settings = msgspec.structs.replace(self.settings, **settings)
        default = Settings()
        lines = [
            f"{name} = {json.dumps(value)}\n"
            for name in (field.name for field in msgspec.structs.fields(Settings))
            if name not in SECTIONS and (value := getattr(self.settings, name)) != getattr(default, name)
        ]
        text = "".join(lines) + self._sections
        self.settings = resolve({}, dict(os.environ), ConfigFile(str(self.file), text), str(self.home)).settings
        self._port = self._client.port = self.settings.port
        self.file.write_text(text)

    def reload(self, *, dry_run: bool = False) -> Any:
        """Have the file read again; return the answer."""
        answer = self.client.post("/internal/reload", {"dry_run": dry_run}, **self.admin_headers)
        assert answer.status == 200, answer.json()
        return answer.json()
