"""The fields of an answer besides its images: the seed of each, and the size. Pure."""

from __future__ import annotations

import base64
import secrets
from typing import Any, Final

import msgspec

from gateway.decoding.image_header import image_size

SEEDS: Final = 2**31
_HEADER: Final = 64 * 1024
"""Characters of a base64 image in which its header is searched."""
_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_objects: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode


def with_seed(body: bytes, seed: int | None) -> tuple[bytes, int]:
    """Return the request with a seed, and the seed. Without one, or with -1, it is random.

    It is chosen here so that a request that is repeated after its engine died draws the same image.
    """
    if seed is not None and seed >= 0:
        return body, seed
    chosen = secrets.randbelow(SEEDS)
    fields: dict[str, Any] = {**_object(body), "seed": chosen}
    return msgspec.json.encode(fields), chosen


def with_seeds_and_size(answer: bytes, seed: int) -> bytes:
    """Return an engine's answer with the ``size`` that was really drawn and each image's ``seed``; raises ValueError.

    For each further image of a request, engines increase the seed by one.
    """
    whole: dict[str, Any] = dict(_object(answer))
    drawn = _objects(whole.get("data", b"[]"))
    size = _size(bytes(drawn[0].get("b64_json", b""))) if drawn else ""
    whole["data"] = [{**picture, "seed": seed + position} for position, picture in enumerate(drawn)]
    return msgspec.json.encode(whole | ({"size": size} if size else {}))


def _size(coded: bytes) -> str:
    """Return ``WIDTHxHEIGHT`` of an image, given as a JSON string of its base64; empty if unknown."""
    header = coded[1 : 1 + _HEADER].rstrip(b'"')
    found = image_size(base64.b64decode(header[: len(header) // 4 * 4]))
    return f"{found[0]}x{found[1]}" if found else ""
