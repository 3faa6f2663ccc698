"""``dimensions`` of an embeddings request: no engine knows the field, so vectors are shortened here, as OpenAI does.

Pure.
"""

from __future__ import annotations

import base64
import struct
from typing import Any

import msgspec

from gateway.api.common.inference.embedding_vectors import read_vectors
from gateway.requests.inference import WholeAnswer


def request_for_numbers(data: bytes) -> bytes:
    """Return a request for vectors as numbers, whatever form the client wants."""
    fields: dict[str, Any] = msgspec.json.decode(data)
    return msgspec.json.encode({**fields, "encoding_format": "float"})


def shortened_answer(answer: WholeAnswer, dimensions: int, *, as_base64: bool) -> bytes:
    """Return an answer whose vectors are cut to their first ``dimensions`` numbers and scaled to length 1.

    Raises ``invalid_request`` if the model's vectors are shorter, ``backend_error`` if the answer cannot be read.
    """
    vectors = read_vectors(answer, dimensions).vectors
    document: dict[str, Any] = msgspec.json.decode(answer.body)
    items = sorted(document["data"], key=lambda item: item.get("index", 0))
    document["data"] = [
        {**item, "embedding": _base64(vector) if as_base64 else vector}
        for item, vector in zip(items, vectors, strict=True)
    ]
    return msgspec.json.encode(document)


def _base64(vector: msgspec.Raw) -> str:
    """Return the numbers as 32-bit floats, lowest byte first, in base64."""
    numbers = msgspec.json.decode(vector)
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()
