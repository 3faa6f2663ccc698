"""What flm answers whole, in the middle language: vectors and transcripts. Pure."""

from __future__ import annotations

import base64
import struct
from typing import Any

import msgspec

from protocol.decoding import UNREADABLE
from protocol.transcripts import Transcript


class _Vector(msgspec.Struct):
    embedding: list[float]
    index: int = 0


class _Vectors(msgspec.Struct):
    data: list[_Vector]
    usage: dict[str, Any] = {}


class _Heard(msgspec.Struct):
    text: str


def vectors(answer: bytes, model: str, coded: bool) -> bytes:
    """Return an answer of embeddings in the form that was asked for; raises ValueError if it is none."""
    try:
        found = msgspec.json.decode(answer, type=_Vectors)
    except UNREADABLE as problem:
        raise ValueError(str(problem)) from problem
    data = [
        {"object": "embedding", "embedding": _coded(each.embedding) if coded else each.embedding, "index": each.index}
        for each in found.data
    ]
    return msgspec.json.encode({"object": "list", "data": data, "model": model, "usage": found.usage})


def transcript(answer: bytes) -> bytes:
    """Return what was heard in the middle language, which here is its text alone; raises ValueError if nothing was."""
    try:
        text = msgspec.json.decode(answer, type=_Heard).text.strip()
    except UNREADABLE as problem:
        raise ValueError(str(problem)) from problem
    return msgspec.json.encode(Transcript(text=text))


def _coded(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
