"""Translates an OpenAI image request for sd-server: JSON, or a form if it contains images. Pure.

From the JSON, sd-server only takes what OpenAI knows. The rest goes inside the prompt, as JSON in a special tag. So a
prompt that contains the tag is refused: it could say anything there, and name files of this machine.
"""

from __future__ import annotations

import io
import secrets
from typing import Any, Final

import msgspec

from protocol.failures import DECODE_ERRORS, Code, Failure, invalid
from protocol.wire import form_data
from protocol.wire.form_data import FormPart

EXTRA_ARGS_TAG: Final = "sd_cpp_extra_args>"
"""The ends of the opening and of the closing tag."""
MAX_EXTRA_ARGS_BYTES: Final = 30_000
"""sd-server reads the tag with a recursive regular expression: 80,000 bytes overflow its stack (measured)."""
_SEEDS: Final = 2**31
_OPAQUE: Final = 255


class ImageFields(msgspec.Struct):
    """The fields that are understood. The gateway has checked their bounds."""

    prompt: str
    n: int | None = None
    size: str | None = None
    output_format: str | None = None
    output_compression: int | None = None
    seed: int | None = None
    steps: int | None = None
    cfg_scale: float | None = None
    flow_shift: float | None = None
    negative_prompt: str | None = None
    strength: float | None = None
    sample_method: str | None = None
    scheduler: str | None = None


_wanted = msgspec.json.Decoder(ImageFields).decode


def engine_body(body: bytes) -> bytes:
    """Return sd-server's request; raises ``invalid_request`` for a prompt that contains its tag.

    Without a seed, sd-server would draw the same image for the same words again and again, so it gets a random one.
    """
    return msgspec.json.encode(_sd_fields(body))


def engine_form(body: bytes) -> bytes:
    """Return sd-server's form for images made from images; raises like :func:`engine_body`."""
    try:
        parts = form_data.parse(form_data.boundary_from_body(body), body)
    except ValueError as problem:
        raise invalid(f"the request is not a form: {problem}") from None
    fields = next((part.data for part in parts if part.name == form_data.JSON_FIELDS_PART), b"")
    fields_parts = [FormPart(name, str(value).encode()) for name, value in _sd_fields(fields).items()]
    # Its older name is only read if there is just one.
    images = [part._replace(name="image[]") for part in parts if part.name == "image"]
    masks = [part._replace(data=engine_mask(part.data)) for part in parts if part.name == "mask"]
    return form_data.encode([*fields_parts, *images, *masks])


def engine_mask(mask: bytes) -> bytes:
    """Return a mask in sd-server's form, where the pixels to draw again are white.

    In OpenAI's form, they are transparent.

    A mask without transparency is left as it is. Raises ``invalid_request`` for an unreadable one.
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


def _sd_fields(body: bytes) -> dict[str, Any]:
    try:
        wanted = _wanted(body)
    except DECODE_ERRORS as problem:
        raise Failure(Code.INVALID_REQUEST, f"the request for a picture is not valid: {problem}").raised() from None
    if EXTRA_ARGS_TAG in wanted.prompt:
        raise invalid(
            f"`prompt` must not have <{EXTRA_ARGS_TAG} in it: `seed`, `steps` and the like are fields", "prompt"
        )
    asked: dict[str, Any] = {"prompt": f"{wanted.prompt} <{EXTRA_ARGS_TAG}{_extra_args(wanted)}</{EXTRA_ARGS_TAG}"}
    for name in ("n", "size", "output_format", "output_compression"):
        value = getattr(wanted, name)
        if value is not None and value != "auto":
            asked[name] = value
    return asked


def _extra_args(wanted: ImageFields) -> str:
    sampling: dict[str, Any] = {"sample_steps": wanted.steps}
    sampling |= {"sample_method": wanted.sample_method, "scheduler": wanted.scheduler, "flow_shift": wanted.flow_shift}
    if wanted.cfg_scale is not None:
        sampling["guidance"] = {"txt_cfg": wanted.cfg_scale}
    seed = wanted.seed if wanted.seed is not None and wanted.seed >= 0 else secrets.randbelow(_SEEDS)
    extras: dict[str, Any] = {"seed": seed, "negative_prompt": wanted.negative_prompt, "strength": wanted.strength}
    extras["sample_params"] = {name: value for name, value in sampling.items() if value is not None}
    given = {name: value for name, value in extras.items() if value not in (None, {})}
    # What the caller wrote must not produce the closing tag, or anything else with a bracket.
    text = msgspec.json.encode(given).decode().replace("<", "\\u003c").replace(">", "\\u003e")
    if len(text.encode()) > MAX_EXTRA_ARGS_BYTES:
        raise invalid("`negative_prompt` is too long", "negative_prompt")
    return text
