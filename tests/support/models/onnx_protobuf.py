"""Writes ONNX files, with the parts of protobuf and of ONNX's messages that a small decoder needs."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

FLOAT, INT64, INT32 = 1, 7, 6
_KINDS = {np.dtype(np.float32): FLOAT, np.dtype(np.int64): INT64, np.dtype(np.int32): INT32}
_FLOAT_ATTRIBUTE, _INT_ATTRIBUTE = 1, 2


def varint(value: int) -> bytes:
    """Return a number in the form of protobuf: seven bits in each byte."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    """Return a field that is a number."""
    return varint(field << 3) + varint(value & (2**64 - 1))


def nested(field: int, value: bytes | str) -> bytes:
    """Return a field that is text or a message."""
    data = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(data)) + data


def real(field: int, value: float) -> bytes:
    """Return a field that is a 32-bit float."""
    return varint(field << 3 | 5) + struct.pack("<f", value)


def tensor(name: str, values: Any) -> bytes:
    """Return a weight."""
    array = np.ascontiguousarray(values)
    dims = b"".join(number(1, size) for size in array.shape)
    return dims + number(2, _KINDS[array.dtype]) + nested(8, name) + nested(9, array.tobytes())


def beside(name: str, shape: Sequence[int], place: str, size: int) -> bytes:
    """Return a weight of floats whose bytes begin the file ``place``."""
    entries = {"location": place, "offset": "0", "length": str(size)}
    encoded = b"".join(nested(13, nested(1, key) + nested(2, value)) for key, value in entries.items())
    return b"".join(number(1, each) for each in shape) + number(2, FLOAT) + nested(8, name) + encoded + number(14, 1)


def node(kind: str, inputs: Sequence[str], outputs: Sequence[str], domain: str = "", **attributes: float) -> bytes:
    """Return an operation."""
    encoded = b"".join(nested(1, each) for each in inputs) + b"".join(nested(2, each) for each in outputs)
    encoded += nested(3, f"{outputs[0]}/{kind}") + nested(4, kind)
    for name, value in attributes.items():
        whole = isinstance(value, int)
        written = number(3, int(value)) if whole else real(2, value)
        kind_of = _INT_ATTRIBUTE if whole else _FLOAT_ATTRIBUTE
        encoded += nested(5, nested(1, name) + written + number(20, kind_of))
    return encoded + (nested(7, domain) if domain else b"")


def value(name: str, kind: int, *shape: int | str) -> bytes:
    """Return an input or output; a size that is a word may vary."""
    dims = b"".join(nested(1, nested(2, size) if isinstance(size, str) else number(1, size)) for size in shape)
    return nested(1, name) + nested(2, nested(1, number(1, kind) + nested(2, dims)))


def model(nodes: list[bytes], weights: list[bytes], inputs: list[bytes], outputs: list[bytes]) -> bytes:
    """Return a file."""
    graph = b"".join(nested(1, each) for each in nodes) + nested(2, "tiny")
    for field, messages in ((5, weights), (11, inputs), (12, outputs)):
        graph += b"".join(nested(field, each) for each in messages)
    operators = [nested(8, nested(1, "") + number(2, 17)), nested(8, nested(1, "com.microsoft") + number(2, 1))]
    return number(1, 9) + b"".join(operators) + nested(7, graph)
