"""What a request asks of our sd-server, as JSON or as a form, read as sd-server reads it.

Decodes images, draws none.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from protocol.wire import form_data
from workers.backends.flag_table import Value
from workers.engine_servers.http_server import EngineHttpError
from workers.engine_servers.sd_server.library import RawImage, decode_image

MAX_IMAGES: Final = 8
MAX_SAMPLE_STEPS: Final = 100
_EXTRAS: Final = re.compile(r"<sd_cpp_extra_args>(.*?)</sd_cpp_extra_args>")
_SIZE: Final = re.compile(r"(\d{1,5})x(\d{1,5})")
_FIELDS: Final[dict[str, tuple[type, ...]]] = {
    "seed": (int,),
    "strength": (int, float),
    "negative_prompt": (str,),
    "clip_skip": (int,),
    "sample_params.sample_steps": (int,),
    "sample_params.sample_method": (str,),
    "sample_params.scheduler": (str,),
    "sample_params.eta": (int, float),
    "sample_params.flow_shift": (int, float),
    "sample_params.guidance.txt_cfg": (int, float),
    "sample_params.guidance.img_cfg": (int, float),
    "sample_params.guidance.distilled_guidance": (int, float),
}
"""The known fields of the JSON inside a prompt. Others are ignored, as sd-server does."""
_FORMS: Final = ("png", "jpeg", "webp")


class ParsedImageRequest:
    """Return a request as it is meant; raises :class:`EngineHttpError`."""

    def __init__(self, fields: dict[str, Any], images: list[bytes], mask: bytes) -> None:
        prompt = fields.get("prompt")
        if not isinstance(prompt, str) or not prompt:
            raise EngineHttpError("prompt required")
        extras = _EXTRAS.search(prompt)
        self.prompt = _EXTRAS.sub("", prompt)
        self.count = min(MAX_IMAGES, max(1, _integer_field(fields, "n", 1)))
        self.form = str(fields.get("output_format", "png")).lower()
        if self.form not in _FORMS:
            raise EngineHttpError(f"invalid output_format, must be one of [{', '.join(_FORMS)}]")
        self.quality = min(100, max(0, _integer_field(fields, "output_compression", 100)))
        self.parameters: dict[str, Value] = _parse_extra_args(extras[1]) if extras else {}
        found = _SIZE.fullmatch(str(fields.get("size", "")))
        size = (int(found[1]), int(found[2])) if found else None
        self.given: list[RawImage] = []
        try:
            for image in images:
                self.given.append(decode_image(image, 3, size))
                size = size or (self.given[0].width, self.given[0].height)
            self.mask = decode_image(mask, 1, size) if mask else None
        except ValueError as problem:
            raise EngineHttpError(str(problem)) from None
        if size is not None:
            self.parameters |= {"width": size[0], "height": size[1]}


def parse_json_request(body: bytes) -> ParsedImageRequest:
    """Return what an image request asks for; raises :class:`EngineHttpError`."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise EngineHttpError("the body is not a JSON object")
    return ParsedImageRequest(fields, [], b"")


def parse_form_request(kind: str, body: bytes) -> ParsedImageRequest:
    """Return what a request for images from images asks for; raises :class:`EngineHttpError`."""
    try:
        parts = form_data.parse(form_data.boundary_from_content_type(kind), body)
        fields: dict[str, Any] = {part.name: part.text() for part in parts if not part.filename}
        for name in ("n", "output_compression"):
            if name in fields:
                fields[name] = int(fields[name])
    except ValueError as problem:
        raise EngineHttpError(f"the form cannot be read: {problem}") from None
    images = [part.data for part in parts if part.name in ("image[]", "image")]
    if not images:
        raise EngineHttpError("at least one image[] required")
    return ParsedImageRequest(fields, images, next((part.data for part in parts if part.name == "mask"), b""))


def _integer_field(fields: dict[str, Any], name: str, default: int) -> int:
    value = fields.get(name, default)
    if type(value) is not int:
        raise EngineHttpError(f"{name} must be a whole number")
    return value


def _parse_extra_args(extras: str) -> dict[str, Value]:
    try:
        tree = json.loads(extras)
    except (ValueError, RecursionError):
        tree = None
    if not isinstance(tree, dict):
        raise EngineHttpError("invalid sd_cpp_extra_args")
    found: dict[str, Value] = {}
    for path, kinds in _FIELDS.items():
        value: Any = tree
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        if type(value) in kinds:
            found[path] = value
    steps = "sample_params.sample_steps"
    if steps in found:
        found[steps] = min(MAX_SAMPLE_STEPS, max(1, int(found[steps])))
    if int(found.get("seed", 0)) < 0:
        del found["seed"]
    return found
