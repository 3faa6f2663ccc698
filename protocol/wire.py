"""Frames of a control message: version, type, head and, for some, a body that nobody on the way decodes.

Frames: ``b"LB1"``, the message's type, its head as msgpack, optionally the payload.  A frame that is not ours
raises :class:`MalformedError`; the owner of the socket counts it and goes on.
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
_by_type: dict[bytes, msgspec.msgpack.Decoder[Any]] = {}
_by_class: dict[type, bytes] = {}


class MalformedError(ValueError):
    """A message that is not one of ours: wrong version, unknown type, or a head that does not decode."""


def control(cls: type[M]) -> type[M]:
    """Class decorator: register a message of the control plane under its class name."""
    name = cls.__name__.encode()
    if name in _by_type:
        raise TypeError(f"two messages are called {cls.__name__}")
    _by_type[name] = msgspec.msgpack.Decoder(cls)
    _by_class[cls] = name
    return cls


def names() -> list[str]:
    """Return the names of all registered control messages."""
    return sorted(name.decode() for name in _by_type)


def encode(message: msgspec.Struct, payload: bytes | None = None) -> list[bytes]:
    """Return the frames of a message."""
    frames = [MARK, _by_class[type(message)], _encoder.encode(message)]
    if payload is not None:
        frames.append(payload)
    return frames


def decode(frames: Sequence[bytes]) -> tuple[Any, bytes]:
    """Return the message and its payload (empty if there is none).

    Raises :class:`MalformedError` for anything that is not one of ours, deep nesting included.
    """
    if len(frames) not in (3, 4):
        raise MalformedError(f"{len(frames)} frames, expected 3 or 4")
    if frames[0] != MARK:
        raise MalformedError(f"protocol version {frames[0][:16]!r}, expected {MARK!r}")
    decoder = _by_type.get(frames[1])
    if decoder is None:
        raise MalformedError(f"unknown message {frames[1][:64]!r}")
    try:
        message = decoder.decode(frames[2])
    except (msgspec.MsgspecError, RecursionError) as problem:
        raise MalformedError(f"{frames[1].decode()}: {problem}") from problem
    return message, frames[3] if len(frames) == 4 else b""


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
