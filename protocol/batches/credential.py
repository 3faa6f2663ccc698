"""How the job that works batches off proves to a gateway that it may act as the owner of a batch.

The job writes a secret into the runtime directory, which only the server's user can read, and sends it with each request. A
client's key is on no disk, and cannot be used for this.
"""

from __future__ import annotations

import hmac
import secrets
from pathlib import Path
from typing import Final

from protocol import small_files

_FILE: Final = "batch-credential"
HEADER: Final = "X-Lemonbus-Batch"
ENVIRON_KEY: Final = "HTTP_X_LEMONBUS_BATCH"
"""The same in a WSGI environment."""


def write(runtime: Path) -> str:
    """Make a new secret and return it; the former one is no longer valid. Raises OSError."""
    secret = secrets.token_hex(32)
    small_files.replace_private(runtime / _FILE, secret.encode())
    return secret


def header(secret: str, owner: str) -> str:
    """Return the value of the header for a request of this owner: the digest of a key, empty for none."""
    return f"{secret} {owner}"


def owner_of(value: str, runtime: Path) -> str | None:
    """Return the owner whom a header names; None if the secret is not the present one."""
    given, _, owner = value.partition(" ")
    try:
        secret = small_files.read_small_file(runtime / _FILE)
    except OSError:
        return None
    return owner if secret and hmac.compare_digest(given.encode("latin-1", "replace"), secret) else None
