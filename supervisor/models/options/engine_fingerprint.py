"""Whether an engine was started with what the configuration says about its model now. Pure."""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from protocol.config.model_settings import ModelSettings

_UNSET: Final = ModelSettings()

ENGINE_KEYS: Final = frozenset({"options", "args", "env", "devices"})
"""Keys of ``[models."NAME"]`` and ``[defaults.RECIPE]`` that an engine gets when it starts."""


def engine_fingerprint(configured: ModelSettings) -> str:
    """Return a fingerprint of what the sections of the configuration say about an engine; empty if they say nothing.

    An empty value counts: ``args = ""`` removes the arguments of the settings.
    """
    values = {key: value for key in sorted(ENGINE_KEYS) if (value := getattr(configured, key)) != getattr(_UNSET, key)}
    return hashlib.sha256(msgspec.json.encode(values, order="deterministic")).hexdigest()[:16] if values else ""
