"""Names of peers and requests on the bus. The server makes the keys; a client's request id is only a label."""

from __future__ import annotations

import random
import re
import secrets
from typing import NamedTuple

REQUEST_LABEL = re.compile(r"[A-Za-z0-9._-]{1,128}")
"""What an ``X-Request-ID`` may look like; anything else is replaced by a new label."""
_HOLD = "hold "
"""No peer's id begins like this, so nothing is ever published for such a topic."""
_HELD = re.compile(rf"{_HOLD}([^:]+):([0-9]+)\.([0-9]+)")


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


def hold_topic(attempt: RequestKey) -> bytes:
    """Return the topic to which a gateway subscribes while a worker is to read no more of an engine's answer."""
    return f"{_HOLD}{attempt}".encode()


def held_attempt(topic: bytes) -> RequestKey | None:
    """Return the attempt of a :func:`hold_topic`, None for another topic."""
    found = _HELD.fullmatch(topic.decode("utf-8", "replace"))
    return RequestKey(found[1], int(found[2]), int(found[3])) if found else None


def request_label(given: str | None) -> str:
    """Return the caller's request id if it is well formed, else a new one."""
    if given and REQUEST_LABEL.fullmatch(given):
        return given
    # It is not a secret, and asking the kernel for each id costs as much as a step of the request.
    return f"req-{random.getrandbits(64):016x}"
