"""What an OpenAI request for pictures becomes for sd-server: JSON, or a form if it brings pictures. Pure.

sd-server takes from the JSON only what OpenAI knows.  The rest goes inside the prompt, as JSON in a tag of its own.
So a prompt that has the tag in it is refused: it could say anything there, and name files of this machine.
"""

from __future__ import annotations

import io
import secrets
from typing import Any, Final

import msgspec

from protocol import forms
from protocol.decoding import UNREADABLE
from protocol.failures import Code, Failure, invalid
from protocol.forms import Part

TAG: Final = "sd_cpp_extra_args>"
"""The end of the tag's beginning and of its end."""
MOST_EXTRAS: Final = 30_000
"""sd-server reads the tag with a regular expression that recurses: 80,000 bytes overflow its stack (measured)."""
_SEEDS: Final = 2**31
_OPAQUE: Final = 255


class Wanted(msgspec.Struct):
    """The fields that are understood. The gateway has seen to their bounds."""

    prompt: str
    n: int | None = None
    size: str | None = None
    output_format: str | None = None
    output_compression: int | None = None
    seed: int | None = None
    steps: int | None = None
    cfg_scale: float | None = None
    negative_prompt: str | None = None
    strength: float | None = None
    sample_method: str | None = None
    scheduler: str | None = None


_wanted = msgspec.json.Decoder(Wanted).decode


def engine_body(body: bytes) -> bytes:
    """Return sd-server's request; raises ``invalid_request`` for a prompt that has its tag in it.

    Without a seed sd-server would draw the same picture for the same words again and again: it gets one by chance.
    """
    return msgspec.json.encode(_asked(body))


def engine_form(body: bytes) -> bytes:
    """Return sd-server's form for pictures that are made from pictures; raises like :func:`engine_body`."""
    try:
        parts = forms.read(forms.boundary_of(body), body)
    except ValueError as problem:
        raise invalid(f"the request is no form: {problem}") from None
    fields = next((part.data for part in parts if part.name == forms.FIELDS), b"")
    told = [Part(name, str(value).encode()) for name, value in _asked(fields).items()]
    # Its older name is read only where there is but one.
    images = [part._replace(name="image[]") for part in parts if part.name == "image"]
    masks = [part._replace(data=engine_mask(part.data)) for part in parts if part.name == "mask"]
    return forms.written([*told, *images, *masks])


def engine_mask(mask: bytes) -> bytes:
    """Return a mask as sd-server reads it: white is drawn anew. OpenAI's masks are transparent there.

    A mask without transparency is left as it is.  Raises ``invalid_request`` for one that cannot be read.
    """
    from PIL import Image, ImageOps  # noqa: PLC0415 - 60 ms that hardly any worker needs

    try:
        with Image.open(io.BytesIO(mask), formats=("PNG", "JPEG")) as file:
            if not file.has_transparency_data:
                return mask
            alpha = file.convert("RGBA").getchannel("A")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        raise invalid("`mask` cannot be read", "mask") from None
    if alpha.getextrema() == (_OPAQUE, _OPAQUE):
        return mask
    file_of_engine = io.BytesIO()
    ImageOps.invert(alpha).save(file_of_engine, "png", compress_level=1)
    return file_of_engine.getvalue()


def _asked(body: bytes) -> dict[str, Any]:
    try:
        wanted = _wanted(body)
    except UNREADABLE as problem:
        raise Failure(Code.INVALID_REQUEST, f"the request for a picture makes no sense: {problem}").raised() from None
    if TAG in wanted.prompt:
        raise invalid(f"`prompt` must not have <{TAG} in it: `seed`, `steps` and the like are fields", "prompt")
    asked: dict[str, Any] = {"prompt": f"{wanted.prompt} <{TAG}{_extras(wanted)}</{TAG}"}
    for name in ("n", "size", "output_format", "output_compression"):
        value = getattr(wanted, name)
        if value is not None and value != "auto":
            asked[name] = value
    return asked


def _extras(wanted: Wanted) -> str:
    sampling: dict[str, Any] = {"sample_steps": wanted.steps}
    sampling |= {"sample_method": wanted.sample_method, "scheduler": wanted.scheduler}
    if wanted.cfg_scale is not None:
        sampling["guidance"] = {"txt_cfg": wanted.cfg_scale}
    seed = wanted.seed if wanted.seed is not None and wanted.seed >= 0 else secrets.randbelow(_SEEDS)
    extras: dict[str, Any] = {"seed": seed, "negative_prompt": wanted.negative_prompt, "strength": wanted.strength}
    extras["sample_params"] = {name: value for name, value in sampling.items() if value is not None}
    told = {name: value for name, value in extras.items() if value not in (None, {})}
    # Neither the tag's end nor anything else with a bracket may come of what the caller wrote.
    text = msgspec.json.encode(told).decode().replace("<", "\\u003c").replace(">", "\\u003e")
    if len(text.encode()) > MOST_EXTRAS:
        raise invalid("`negative_prompt` is too long", "negative_prompt")
    return text
