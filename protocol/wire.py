"""Frames of a control message: one with version, type and head and, for some, a body that nobody on the way decodes.

The first is the line ``LB3 Name`` and the head as msgpack; the second, if there is one, the payload.  A frame more
costs every socket on the way more than all the bytes of a head.  A frame that is not ours raises
:class:`MalformedError`; the owner of the socket counts it and goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from protocol import VERSION

MARK = b"LB%d" % VERSION
M = TypeVar("M", bound=msgspec.Struct)

_encoder = msgspec.msgpack.Encoder()
_decoders: dict[bytes, msgspec.msgpack.Decoder[Any]] = {}
"""By the first line of a message."""
_lines: dict[type, bytes] = {}
"""The first line of a message, with its end."""


class MalformedError(ValueError):
    """A message that is not one of ours: wrong version, unknown type, or a head that does not decode."""


def control(cls: type[M]) -> type[M]:
    """Class decorator: register a message of the control plane under its class name."""
    line = MARK + b" " + cls.__name__.encode()
    if line in _decoders:
        raise TypeError(f"two messages are called {cls.__name__}")
    _decoders[line] = msgspec.msgpack.Decoder(cls)
    _lines[cls] = line + b"\n"
    return cls


def names() -> list[str]:
    """Return the names of all registered control messages."""
    return sorted(line.decode().partition(" ")[2] for line in _decoders)


def encode(message: msgspec.Struct, payload: bytes | None = None) -> list[bytes]:
    """Return the frames of a message."""
    first = _lines[type(message)] + _encoder.encode(message)
    return [first] if payload is None else [first, payload]


def decode(frames: Sequence[bytes]) -> tuple[Any, bytes]:
    """Return the message and its payload (empty if there is none).

    Raises :class:`MalformedError` for anything that is not one of ours, deep nesting included.
    """
    if not 0 < len(frames) <= 2:
        raise MalformedError(f"{len(frames)} frames, expected 1 or 2")
    line, _, head = frames[0].partition(b"\n")
    decoder = _decoders.get(line)
    if decoder is None:
        what = "unknown message" if line.startswith(MARK + b" ") else f"expected {MARK!r} and a message, not"
        raise MalformedError(f"{what} {line[:64]!r}")
    try:
        message = decoder.decode(head)
    except (msgspec.MsgspecError, RecursionError) as problem:
        raise MalformedError(f"{line.decode()}: {problem}") from problem
    return message, frames[1] if len(frames) == 2 else b""


@lru_cache(maxsize=256)
def _decoder(cls: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(cls)


def pack(value: object) -> bytes:
    """Return a value as msgpack, for payloads."""
    return _encoder.encode(value)


def unpack(data: bytes, cls: Any) -> Any:
    """Return a payload as ``cls``; raises :class:`MalformedError`."""
    try:
        return _decoder(cls).decode(data)
    except (msgspec.MsgspecError, RecursionError) as problem:
        raise MalformedError(str(problem)) from problem
