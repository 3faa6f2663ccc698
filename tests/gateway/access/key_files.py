"""A file of keys for tests, and the keys in it by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from protocol.config.api_keys import KEYS_FILE, ApiKey, digest, write_keys


def secret_of(name: str) -> str:
    return f"lb-secret-{name}"


def key(name: str, **fields: Any) -> ApiKey:
    return msgspec.convert({"name": name, "sha256": digest(secret_of(name)), **fields}, ApiKey)


def store(folder: Path, *keys: ApiKey) -> None:
    """Write the file of keys of a state directory."""
    folder.mkdir(parents=True, exist_ok=True)
    write_keys(folder / KEYS_FILE, keys)


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret_of(name)}"}
