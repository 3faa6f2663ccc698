"""Translates flm's whole answers to the internal format: vectors and transcripts. Pure."""

from __future__ import annotations

import base64
import struct
from typing import Any

import msgspec

from protocol.failures import DECODE_ERRORS
from protocol.wire.transcripts import Transcript


class _Vector(msgspec.Struct):
    embedding: list[float]
    index: int = 0


class _Vectors(msgspec.Struct):
    data: list[_Vector]
    usage: dict[str, Any] = {}


class _FlmTranscription(msgspec.Struct):
    text: str


def convert_embeddings(answer: bytes, model: str, coded: bool) -> bytes:
    """Return an answer of embeddings in the requested encoding; raises ValueError for any other answer."""
    try:
        found = msgspec.json.decode(answer, type=_Vectors)
    except DECODE_ERRORS as problem:
        raise ValueError(str(problem)) from problem
    data = [
        {
            "object": "embedding",
            "embedding": _base64_vector(each.embedding) if coded else each.embedding,
            "index": each.index,
        }
        for each in found.data
    ]
    return msgspec.json.encode({"object": "list", "data": data, "model": model, "usage": found.usage})


def convert_flm_transcription(answer: bytes) -> bytes:
    """Return a transcript in the internal format, with only its text; raises ValueError for any other answer."""
    try:
        text = msgspec.json.decode(answer, type=_FlmTranscription).text.strip()
    except DECODE_ERRORS as problem:
        raise ValueError(str(problem)) from problem
    return msgspec.json.encode(Transcript(text=text))


def _base64_vector(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
