"""The parts of a message's content: texts, images and files, and their translation for a chat. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from gateway.fetching.image_source import ImageSource, only_inline
from gateway.http.bodies import body_decoding
from protocol.failures import invalid
from protocol.requests.grammar_limits import check_size
from protocol.requests.text_limits import MAX_TEXT_BYTES

Part = dict[str, Any]
_TEXT_PARTS: Final = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
"""Type of a text part → its field."""


class InputImage(msgspec.Struct):
    """An image in the request itself."""

    image_url: str | None = None
    file_id: str | None = None
    detail: str | None = None


class InputFile(msgspec.Struct):
    """A file in the request itself."""

    file_data: str | None = None
    filename: str | None = None
    file_id: str | None = None
    file_url: str | None = None


class InputAudio(msgspec.Struct):
    """A recording in the request itself, in the form of chat completions."""

    input_audio: dict[str, Any]


def text_of(content: str | Sequence[Part], where: str) -> str:
    """Return content that can only be text; raises ``invalid_request`` for an image or a file in it."""
    if isinstance(content, str):
        return content
    texts = []
    for position, part in enumerate(content):
        text = _text(part, f"{where}[{position}]")
        if text is None:
            kind = str(part.get("type"))[:64]
            raise invalid(f"`{where}[{position}]`: only text is possible here, not {kind}", f"{where}[{position}]")
        texts.append(text)
    return "\n".join(texts)


def chat_content(
    content: str | Sequence[Part], where: str, role: str = "user", image: ImageSource = only_inline
) -> str | list[Part]:
    """Return the content of a chat message: a text if all parts are texts, else a list of parts.

    Raises ``invalid_request`` naming the part that is wrong or cannot be used. Only users send images and files.
    ``image``: resolves the URLs of images.
    """
    if isinstance(content, str) or role != "user":
        return text_of(content, where)
    parts = [_chat_part(part, f"{where}[{position}]", image) for position, part in enumerate(content)]
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _text(part: Part, where: str) -> str | None:
    kind = part.get("type")
    field = _TEXT_PARTS.get(kind) if isinstance(kind, str) else None
    if field is None:
        return None
    text = part.get(field)
    if not isinstance(text, str):
        raise invalid(f"`{where}.{field}` must be a string", f"{where}.{field}")
    return text


def _chat_part(part: Part, where: str, image: ImageSource) -> Part:
    text = _text(part, where)
    if text is not None:
        return {"type": "text", "text": text}
    kind = part.get("type")
    if kind == "input_image":
        return _image(body_decoding.convert(part, InputImage, where), where, image)
    if kind == "input_file":
        return _file(body_decoding.convert(part, InputFile, where), where)
    if kind == "input_audio":
        audio = body_decoding.convert(part, InputAudio, where)
        return {"type": "input_audio", "input_audio": audio.input_audio}
    raise invalid(f"`{where}`: parts of type {str(kind)[:64]} are not served here", where)


def _image(given: InputImage, where: str, image: ImageSource) -> Part:
    if not given.image_url:
        what = "this server stores no files" if given.file_id else "`image_url` is required"
        raise invalid(f"`{where}`: {what}; send the picture as a data URL in `image_url`", where)
    return {"type": "image_url", "image_url": {"url": image(given.image_url, f"{where}.image_url")}}


def _file(file: InputFile, where: str) -> Part:
    """Return a text file as text; engines read no other format."""
    if not file.file_data:
        what = "files are not fetched" if file.file_url else "this server stores no files"
        raise invalid(f"`{where}`: {what}; send the file in `file_data`", where)
    name = file.filename or "file"
    # A data URL, or bare base64.
    encoded = file.file_data.rpartition("base64,")[2] if file.file_data.startswith("data:") else file.file_data
    check_size(f"{where}.file_data", "characters", len(encoded), MAX_TEXT_BYTES * 4 // 3)
    try:
        text = base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, ValueError):
        text = "\0"
    if "\0" in text:
        raise invalid(f"`{where}.file_data`: only text files (UTF-8, in base64) can be read here", f"{where}.file_data")
    return {"type": "text", "text": f"File {name}:\n{text}"}
