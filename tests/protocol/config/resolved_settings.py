"""Settings from sources that a test gives, without the settings of this process."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from protocol.config.config_file import ConfigFile
from protocol.config.resolver import Flags, ResolvedSettings, resolve
from protocol.failures import Code, LemonbusError

PATH = "/etc/lemonbus/lemonbus.toml"


def resolved(
    flags: Flags | None = None, environment: Mapping[str, str] | None = None, text: str = ""
) -> ResolvedSettings:
    return resolve(flags or {}, environment or {}, ConfigFile(PATH, text) if text else None, "/here")


def complaint(flags: Flags | None = None, environment: Mapping[str, str] | None = None, text: str = "") -> str:
    """The one line that refuses these settings."""
    with pytest.raises(LemonbusError) as caught:
        resolved(flags, environment, text)
    assert caught.value.failure.code is Code.INVALID_REQUEST
    assert "\n" not in str(caught.value)
    return str(caught.value)
