"""Names of peers and requests on the bus. The server makes the keys; a client's request id is only a label."""

from __future__ import annotations

import random
import re
import secrets
from typing import NamedTuple

REQUEST_LABEL = re.compile(r"[A-Za-z0-9._-]{1,128}")
"""What an ``X-Request-ID`` may look like; anything else is replaced by a new label."""


class RequestKey(NamedTuple):
    """One attempt at one request, unique for the lifetime of the server. Request and attempt numbers count from 1."""

    gateway: str
    number: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.gateway}:{self.number}.{self.attempt}"


def peer_id(role: str) -> str:
    """Return a fresh id for a gateway, worker or job: its role's letter and 8 hexadecimal digits."""
    return f"{role[0]}{secrets.token_hex(4)}"


def topic(gateway: str) -> bytes:
    """Return the topic of a gateway. The dot ends it, because SUB matches by prefix."""
    return gateway.encode() + b"."


def request_label(given: str | None) -> str:
    """Return the caller's request id if it is well formed, else a new one."""
    if given and REQUEST_LABEL.fullmatch(given):
        return given
    # It is not a secret, and asking the kernel for each id costs as much as a step of the request.
    return f"req-{random.getrandbits(64):016x}"
