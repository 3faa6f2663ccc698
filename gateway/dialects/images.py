"""OpenAI's images: pictures from words, and from words and other pictures.

What is checked is in :class:`PictureRequest`; the rest passes through.  An engine gets a form as it gets JSON: the fields
as one JSON object (``protocol/forms.py`` has the field's name), the pictures beside it.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

import falcon
import msgspec
from msgspec import Meta

from gateway import answers, bodies
from gateway.answers import Question
from gateway.dialects.image_answer import told, with_seed
from gateway.house import House
from gateway.sides import JPEG, PNG, sides
from gateway.visit import of
from protocol import forms
from protocol.decoding import UNREADABLE
from protocol.failures import Code, Failure, invalid
from protocol.forms import Part

GENERATIONS: Final = "images/generations"
EDITS: Final = "images/edits"
MOST_PICTURES: Final = 8
"""stable-diffusion.cpp draws no more at once, and would say nothing of it."""
LEAST_SIDE: Final = 64
MOST_SIDE: Final = 4096
MOST_GIVEN: Final = 8192
"""Pixels of a side of a picture that is given: a small file may be an immense picture."""
_SIZE: Final = re.compile(r"([1-9]\d{0,5})x([1-9]\d{0,5})", re.ASCII)
_PICTURE: Final = b'"b64_json"'
MOST_FILES: Final = 16
LARGEST_FIELD: Final = 65_536
"""Bytes of a field that is no file."""
_LITERAL: Final = re.compile(r"-?\d{1,19}(\.\d{1,19})?|true|false", re.ASCII)
_TEXTS: Final = frozenset({"prompt", "negative_prompt", "model", "size", "scheduler", "sample_method"})
"""Fields of a form that are text, whatever they look like."""
_MAGIC: Final = {PNG: b"IEND", JPEG: b"\xff\xd9"}
"""How a PNG and a JPEG begin, and what is at their end."""
_END: Final = 64
"""Bytes of the end that are looked at."""

Name = Annotated[str, Meta(pattern="^[A-Za-z0-9_+.-]{1,64}$")]


class PictureRequest(msgspec.Struct, kw_only=True):
    """``POST images/generations``: OpenAI's fields, and those of whoever has a model of their own."""

    prompt: Annotated[str, Meta(min_length=1, max_length=32_000)]
    model: str | None = None
    n: Annotated[int, Meta(ge=1, le=MOST_PICTURES)] | None = None
    size: str | None = None
    response_format: Literal["b64_json", "url"] | None = None
    output_format: Literal["png", "jpeg", "webp"] | None = None
    output_compression: Annotated[int, Meta(ge=0, le=100)] | None = None
    stream: bool | None = None
    seed: Annotated[int, Meta(ge=-1, le=2**63 - 1)] | None = None
    """-1: whatever comes."""
    steps: Annotated[int, Meta(ge=1, le=100)] | None = None
    cfg_scale: Annotated[float, Meta(ge=0, le=100)] | None = None
    negative_prompt: Annotated[str, Meta(max_length=4_000)] | None = None
    sample_method: Name | None = None
    scheduler: Name | None = None

    def check(self) -> None:
        """Raise what the types cannot say."""
        if self.response_format == "url":
            raise invalid(
                "`response_format` can only be `b64_json`: pictures are answered, not kept where a url could find them",
                "response_format",
            )
        if self.stream:
            raise invalid("`stream`: pictures come whole", "stream")
        if self.size not in (None, "auto"):
            found = _SIZE.fullmatch(self.size or "")
            if found is None:
                raise invalid("`size` must be WIDTHxHEIGHT, such as 512x512", "size")
            if not all(LEAST_SIDE <= int(side) <= MOST_SIDE for side in found.groups()):
                raise invalid(f"`size`: each side must be from {LEAST_SIDE} up to {MOST_SIDE} pixels", "size")


class EditRequest(PictureRequest, kw_only=True):
    """``POST images/edits``: the same, without its files."""

    strength: Annotated[float, Meta(ge=0, le=1)] | None = None
    """How much of the first picture may become something else."""


class Generations:
    """Pictures from a prompt."""

    def __init__(self, house: House) -> None:
        """Ask ``house``."""
        self._house = house

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer with the pictures, each in base64."""
        data = bodies.read_json(req, self._house.settings.body_limit)
        request = bodies.decode(data, PictureRequest)
        request.check()
        body, seed = with_seed(data, request.seed)
        answer(self._house, req, resp, GENERATIONS, request, body, seed)


class Edits:
    """Pictures from a prompt and from pictures; where a mask is given, only what is transparent or white in it is drawn anew."""

    def __init__(self, house: House) -> None:
        """Ask ``house``."""
        self._house = house

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer with the pictures, each in base64."""
        fields, files = divided(bodies.read_form(req, self._house.settings.body_limit))
        data = msgspec.json.encode(fields)
        request = bodies.decode(data, EditRequest)
        request.check()
        if not any(file.name == "image" for file in files):
            raise invalid("`image` is required", "image")
        _check_drawn(request, files)
        data, seed = with_seed(data, request.seed)
        answer(self._house, req, resp, EDITS, request, forms.written([Part(forms.FIELDS, data), *files]), seed)


def answer(
    house: House,
    req: falcon.Request,
    resp: falcon.Response,
    endpoint: str,
    request: PictureRequest,
    body: bytes,
    seed: int,
) -> None:
    """Ask the house and make ``resp`` its answer."""
    visit = of(req.env)
    visit.model = request.model or ""
    whole = answers.whole(house, req.env, Question(endpoint, visit.model, body, visit.label))
    visit.model = whole.model
    if _PICTURE not in whole.body:
        raise Failure(Code.BACKEND_ERROR, "the engine drew no picture", model=whole.model).raised()
    resp.content_type = falcon.MEDIA_JSON
    try:
        resp.data = told(whole.body, seed)
    except (ValueError, *UNREADABLE) as problem:
        message = "the engine's pictures were not understood"
        raise Failure(Code.BACKEND_ERROR, message, model=whole.model, detail=str(problem)).raised() from None


def divided(parts: list[Part]) -> tuple[dict[str, Any], list[Part]]:
    """Return the fields of a form as JSON would have them, and its pictures; raises ``invalid_request``."""
    fields: dict[str, Any] = {}
    files: list[Part] = []
    for part in parts:
        name = part.name.removesuffix("[]")
        shown = name[:80]
        if name in ("image", "mask"):
            files.append(Part(name, _checked(part, shown), name))
        elif part.filename or name in fields or len(part.data) > LARGEST_FIELD:
            raise invalid(f"`{shown}` must be a text, and there once", shown)
        elif part.data:
            fields[name] = _value(name, part)
    images = sum(file.name == "image" for file in files)
    if images > MOST_FILES or len(files) - images > 1:
        raise invalid(f"there can be {MOST_FILES} pictures and one mask", "image")
    return fields, files


def _value(name: str, part: Part) -> Any:
    try:
        text = part.text()
    except UnicodeDecodeError:
        raise invalid(f"`{name[:80]}` is no UTF-8", name[:80]) from None
    return msgspec.json.decode(text) if name not in _TEXTS and _LITERAL.fullmatch(text) and _sound(text) else text


def _sound(number: str) -> bool:
    return not re.match(r"-?0\d", number)


def _check_drawn(request: EditRequest, files: list[Part]) -> None:
    """Raise ``invalid_request`` if nobody says how large to draw, and what is given is too large to go by."""
    first = next(file.data for file in files if file.name == "image")
    if request.size in (None, "auto") and max(sides(first) or (0,)) > MOST_SIDE:
        raise invalid(f"`size` is required: `image` has more than {MOST_SIDE} pixels on a side", "size")


def _checked(part: Part, name: str) -> bytes:
    """Return a picture that is whole, as far as its ends tell: the engine passes over what it cannot read."""
    end = next((end for magic, end in _MAGIC.items() if part.data.startswith(magic)), None)
    if end is None:
        raise invalid(f"`{name}` must be a PNG or a JPEG", name)
    if end not in part.data[-_END:]:
        raise invalid(f"`{name}` is not whole", name)
    found = sides(part.data)
    if found is None or not all(0 < side <= MOST_GIVEN for side in found):
        raise invalid(f"`{name}` must be a picture of at most {MOST_GIVEN} pixels a side", name)
    return part.data
