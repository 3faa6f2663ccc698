"""A control message as one frame: version and type, a head, and sometimes a body that no process on the way decodes.

The line ``LB12 Name``, the length of the head (four bytes, the greatest first), the head as msgpack, the payload. A
second frame would cost every socket on the way more than the bytes of most bodies. A frame of any other form raises
:class:`MalformedError`, which the owner of the socket counts before it goes on.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec

from protocol import UNDERSTOOD, VERSION
from protocol.failures import DECODE_ERRORS

PROTOCOL_MARK = b"LB%d" % VERSION
_STABLE_MARK: Final = b"LB0"
"""Of the few messages that have the same form in every version, so that processes of two versions can part in good order."""
_LENGTH: Final = 4
"""Length of the field for the head's length, in bytes."""
_LONGEST_LINE: Final = 64
_END: Final = b"\n"
_MARK: Final = re.compile(rb"LB(\d{1,6}) ")
M = TypeVar("M", bound=msgspec.Struct)

_encoder = msgspec.msgpack.Encoder()
_decoders: dict[bytes, msgspec.msgpack.Decoder[Any]] = {}
"""Messages by their first line."""
_lines: dict[type, bytes] = {}
"""The first line of a message, with its line end."""


class MalformedError(ValueError):
    """A frame that is not one of our messages: wrong version, unknown type, or an undecodable head."""


class OtherVersionError(MalformedError):
    """A message in another ``version`` of the protocol."""

    def __init__(self, version: int) -> None:
        """Say which version it is, and which is expected."""
        super().__init__(f"expected version {VERSION} of the protocol, not {version}")
        self.version = version


def control_message(cls: type[M]) -> type[M]:
    """Class decorator: register a message of the control plane under its class name."""
    for version in UNDERSTOOD - {VERSION}:
        _register(cls, b"LB%d" % version)
    return _register(cls, PROTOCOL_MARK)


def stable_message(cls: type[M]) -> type[M]:
    """Class decorator: register a message that processes of all versions understand. New fields must have defaults."""
    return _register(cls, _STABLE_MARK)


def _register(cls: type[M], mark: bytes) -> type[M]:
    line = mark + b" " + cls.__name__.encode()
    if line in _decoders:
        raise TypeError(f"two messages are called {cls.__name__}")
    _decoders[line] = msgspec.msgpack.Decoder(cls)
    _lines[cls] = line + b"\n"
    return cls


def message_names() -> list[str]:
    """Return the names of all registered control messages."""
    return sorted({line.decode().partition(" ")[2] for line in _decoders})


def encode(message: msgspec.Struct, payload: bytes = b"") -> bytes:
    """Return the frame of a message."""
    head = _encoder.encode(message)
    return b"".join((_lines[type(message)], len(head).to_bytes(_LENGTH, "big"), head, payload))


def decode(frame: bytes) -> tuple[Any, bytes]:
    """Return the message and its payload (empty if there is none).

    Raises :class:`MalformedError` for anything that is not one of our messages, deep nesting included.
    """
    end = frame.find(_END, 0, _LONGEST_LINE)
    line = frame[: max(0, end)]
    decoder = _decoders.get(line)
    if decoder is None:
        other = _MARK.match(line)
        if other is not None and int(other[1]) not in {0, *UNDERSTOOD}:
            raise OtherVersionError(int(other[1]))
        what = (
            "unknown message"
            if line.startswith(PROTOCOL_MARK + b" ")
            else f"expected {PROTOCOL_MARK!r} and a message, not"
        )
        raise MalformedError(f"{what} {frame[:_LONGEST_LINE].partition(_END)[0]!r}")
    start = end + 1 + _LENGTH
    stop = start + int.from_bytes(frame[end + 1 : start], "big")
    if not start < stop <= len(frame):
        raise MalformedError(f"{line.decode()}: its head is not all here")
    try:
        message = decoder.decode(frame[start:stop])
    except DECODE_ERRORS as problem:
        raise MalformedError(f"{line.decode()}: {problem}") from problem
    return message, frame[stop:]


@lru_cache(maxsize=256)
def _decoder(cls: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(cls)


def pack_payload(value: object) -> bytes:
    """Return a value as msgpack, for payloads."""
    return _encoder.encode(value)


def unpack_payload(data: bytes, cls: Any) -> Any:
    """Return a payload as ``cls``; raises :class:`MalformedError`."""
    try:
        return _decoder(cls).decode(data)
    except DECODE_ERRORS as problem:
        raise MalformedError(str(problem)) from problem
