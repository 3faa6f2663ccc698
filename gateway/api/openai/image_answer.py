"""What is told beside an engine's pictures: the seed that each was drawn with, and how large they are. Pure."""

from __future__ import annotations

import base64
import secrets
from typing import Any, Final

import msgspec

from gateway.api.openai.image_size import image_size

SEEDS: Final = 2**31
_HEADER: Final = 64 * 1024
"""Characters of a picture in base64 whose header is looked for."""
_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_objects: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode


def with_seed(body: bytes, seed: int | None) -> tuple[bytes, int]:
    """Return a request that has a seed, and the seed: without one, or with -1, it is chosen at random here.

    So a picture that is drawn again after its engine died is the same picture.
    """
    if seed is not None and seed >= 0:
        return body, seed
    chosen = secrets.randbelow(SEEDS)
    fields: dict[str, Any] = {**_object(body), "seed": chosen}
    return msgspec.json.encode(fields), chosen


def with_seeds_and_size(answer: bytes, seed: int) -> bytes:
    """Return an engine's answer with ``size`` as it was really drawn, and each picture's ``seed``; raises ValueError.

    Engines draw the second picture of a request with the seed after that of the first, and so on.
    """
    whole: dict[str, Any] = dict(_object(answer))
    drawn = _objects(whole.get("data", b"[]"))
    size = _size(bytes(drawn[0].get("b64_json", b""))) if drawn else ""
    whole["data"] = [{**picture, "seed": seed + place} for place, picture in enumerate(drawn)]
    return msgspec.json.encode(whole | ({"size": size} if size else {}))


def _size(coded: bytes) -> str:
    """Return the size of a picture, whose base64 is given as JSON has it; empty if it is not known."""
    header = coded[1 : 1 + _HEADER].rstrip(b'"')
    found = image_size(base64.b64decode(header[: len(header) // 4 * 4]))
    return f"{found[0]}x{found[1]}" if found else ""
