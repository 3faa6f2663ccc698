"""Server-sent events, as every family's streams have them. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec

MEDIA_TYPE: Final = "text/event-stream; charset=utf-8"
PING: Final = b": still here\n\n"
"""A comment, which clients ignore: some accept no event before their API's first one."""
_encode: Final = msgspec.json.Encoder().encode


def event(name: str, data: Any) -> bytes:
    """Return one event with a name."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), _encode(data))


def unnamed_event(data: bytes) -> bytes:
    """Return one event of ``data``, which is JSON."""
    return b"data: %b\n\n" % data
