"""OpenAI's images: from a prompt, and from a prompt and other images.

:class:`ImageRequest` names the fields that are checked; the rest passes through. The engine gets a form with two kinds
of parts: all fields as one JSON object (``protocol/wire/form_data.py`` names that part), and the images.
"""

from __future__ import annotations

import base64
import re
import secrets
from functools import partial
from typing import Annotated, Any, Final, Literal

import falcon
import msgspec
from msgspec import Meta

from gateway.api.common.inference.inference_resource import FormResource, InferenceResource, TranslatedRequest
from gateway.decoding.image_header import JPEG, PNG, image_size
from gateway.http.bodies import body_decoding
from gateway.http.request_context import client_of
from gateway.requests.answer_stream import WholeAnswer
from gateway.requests.late_answer import AnswerFormat
from protocol.failures import DECODE_ERRORS, Code, Failure, invalid, not_understood
from protocol.wire import form_data
from protocol.wire.form_data import FormPart

GENERATIONS: Final = "images/generations"
EDITS: Final = "images/edits"
MAX_IMAGES: Final = 8
"""The most that stable-diffusion.cpp draws at once; it silently ignores a larger number."""
MIN_SIDE_PIXELS: Final = 64
MAX_SIDE_PIXELS: Final = 4096
MAX_INPUT_SIDE_PIXELS: Final = 8192
"""Pixels per side of a client's image: a small file may be an immense image."""
_SIZE: Final = re.compile(r"([1-9]\d{0,5})x([1-9]\d{0,5})", re.ASCII)
_IMAGE_KEY: Final = b'"b64_json"'
MAX_FILES: Final = 16
MAX_FIELD_BYTES: Final = 65_536
"""Bytes of a field that is not a file."""
_LITERAL: Final = re.compile(r"-?\d{1,19}(\.\d{1,19})?|true|false", re.ASCII)
_TEXT_FIELDS: Final = frozenset({"prompt", "negative_prompt", "model", "size", "scheduler", "sample_method"})
"""Text fields of a form, even if they look like numbers."""
_END_BY_MAGIC: Final = {PNG: b"IEND", JPEG: b"\xff\xd9"}
"""The first bytes of a PNG and of a JPEG, and bytes that must be near the end."""
_END_BYTES: Final = 64
"""How many bytes at the end of a file are searched for them."""

OptionName = Annotated[str, Meta(pattern="^[A-Za-z0-9_+.-]{1,64}$")]


class ImageRequest(msgspec.Struct, kw_only=True):
    """``POST images/generations``: OpenAI's fields, and those that stable-diffusion.cpp adds."""

    prompt: Annotated[str, Meta(min_length=1, max_length=32_000)]
    model: str | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_IMAGES)] | None = None
    size: str | None = None
    response_format: Literal["b64_json", "url"] | None = None
    output_format: Literal["png", "jpeg", "webp"] | None = None
    output_compression: Annotated[int, Meta(ge=0, le=100)] | None = None
    stream: bool | None = None
    seed: Annotated[int, Meta(ge=-1, le=2**63 - 1)] | None = None
    """-1: a random one."""
    steps: Annotated[int, Meta(ge=1, le=100)] | None = None
    cfg_scale: Annotated[float, Meta(ge=0, le=100)] | None = None
    flow_shift: Annotated[float, Meta(ge=0, le=100)] | None = None
    negative_prompt: Annotated[str, Meta(max_length=4_000)] | None = None
    sample_method: OptionName | None = None
    scheduler: OptionName | None = None

    def check(self) -> None:
        """Raise ``invalid_request`` for what the types cannot express."""
        if self.response_format == "url":
            raise invalid(
                "`response_format` must be `b64_json`: pictures are sent in the answer, because the server keeps none for a URL",
                "response_format",
            )
        if self.stream:
            raise invalid("`stream`: pictures are not streamed", "stream")
        if self.size not in (None, "auto"):
            found = _SIZE.fullmatch(self.size or "")
            if found is None:
                raise invalid("`size` must be WIDTHxHEIGHT, such as 512x512", "size")
            if not all(MIN_SIDE_PIXELS <= int(side) <= MAX_SIDE_PIXELS for side in found.groups()):
                raise invalid(
                    f"`size`: each side must be from {MIN_SIDE_PIXELS} up to {MAX_SIDE_PIXELS} pixels", "size"
                )


class ImageEditRequest(ImageRequest, kw_only=True):
    """``POST images/edits``: the same fields, without the files."""

    strength: Annotated[float, Meta(ge=0, le=1)] | None = None
    """How much of the first image may change."""


class ImageGenerationsResource(InferenceResource[ImageRequest]):
    """``POST images/generations``: images from a prompt."""

    request_type = ImageRequest

    def translate(self, _req: falcon.Request, request: ImageRequest, data: bytes) -> TranslatedRequest:
        """Check the request and give it a seed."""
        request.check()
        body, seed = with_seed(data, request.seed)
        return _translated(GENERATIONS, request, body, seed)


class ImageEditsResource(FormResource):
    """``POST images/edits``: images from a prompt and images.

    A mask limits the change to its transparent pixels or, if it has no transparency, to its white ones.
    """

    def translate(self, req: falcon.Request, request: list[FormPart], _data: bytes) -> TranslatedRequest:
        """Check the form and give the request a seed."""
        fields, files = split_form(request)
        data = msgspec.json.encode(fields)
        edit = body_decoding.decode(data, ImageEditRequest, client_of(req.env))
        edit.check()
        if not any(file.name == "image" for file in files):
            raise invalid("`image` is required", "image")
        _check_output_size(edit, files)
        data, seed = with_seed(data, edit.seed)
        form = form_data.encode([FormPart(form_data.JSON_FIELDS_PART, data), *files])
        return _translated(EDITS, edit, form, seed)


def _translated(endpoint: str, request: ImageRequest, body: bytes, seed: int) -> TranslatedRequest:
    answer = AnswerFormat(falcon.MEDIA_JSON, partial(write_images, seed=seed))
    return TranslatedRequest(endpoint, request.model or "", body, answer=answer, takes_long=True)


def write_images(answer: WholeAnswer, seed: int) -> bytes:
    """Return the images, each in base64 with its seed; raises ``backend_error`` for an answer without images."""
    if _IMAGE_KEY not in answer.body:
        raise Failure(Code.BACKEND_ERROR, "the engine drew no picture", model=answer.model).raised()
    try:
        return with_seeds_and_size(answer.body, seed)
    except (ValueError, *DECODE_ERRORS) as problem:
        raise not_understood(problem, answer.model) from None


def split_form(parts: list[FormPart]) -> tuple[dict[str, Any], list[FormPart]]:
    """Return the fields of a form as JSON would have them, and its images; raises ``invalid_request``."""
    fields: dict[str, Any] = {}
    files: list[FormPart] = []
    for part in parts:
        name = part.name.removesuffix("[]")
        shown = name[:80]
        if name in ("image", "mask"):
            files.append(FormPart(name, _checked_image(part, shown), name))
        elif part.filename or name in fields or len(part.data) > MAX_FIELD_BYTES:
            raise invalid(f"`{shown}` must be a text, given once", shown)
        elif part.data:
            fields[name] = _value(name, part)
    images = sum(file.name == "image" for file in files)
    if images > MAX_FILES or len(files) - images > 1:
        raise invalid(f"there can be {MAX_FILES} pictures and one mask", "image")
    return fields, files


def _value(name: str, part: FormPart) -> Any:
    try:
        text = part.text()
    except UnicodeDecodeError:
        raise invalid(f"`{name[:80]}` is not UTF-8", name[:80]) from None
    return (
        msgspec.json.decode(text)
        if name not in _TEXT_FIELDS and _LITERAL.fullmatch(text) and _is_json_number(text)
        else text
    )


def _is_json_number(number: str) -> bool:
    return not re.match(r"-?0\d", number)


def _check_output_size(request: ImageEditRequest, files: list[FormPart]) -> None:
    """Raise ``invalid_request`` if there is no ``size`` and the given image is too large to take its size."""
    first = next(file.data for file in files if file.name == "image")
    if request.size in (None, "auto") and max(image_size(first) or (0,)) > MAX_SIDE_PIXELS:
        raise invalid(f"`size` is required: `image` has more than {MAX_SIDE_PIXELS} pixels on a side", "size")


def _checked_image(part: FormPart, name: str) -> bytes:
    """Return an image whose first and last bytes show that it is complete: the engine ignores what it cannot read."""
    end = next((end for magic, end in _END_BY_MAGIC.items() if part.data.startswith(magic)), None)
    if end is None:
        raise invalid(f"`{name}` must be a PNG or a JPEG", name)
    if end not in part.data[-_END_BYTES:]:
        raise invalid(f"`{name}` is not whole", name)
    found = image_size(part.data)
    if found is None or not all(0 < side <= MAX_INPUT_SIDE_PIXELS for side in found):
        raise invalid(f"`{name}` must be a picture of at most {MAX_INPUT_SIDE_PIXELS} pixels a side", name)
    return part.data


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
