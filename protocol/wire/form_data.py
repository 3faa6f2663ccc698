"""Forms with files (``multipart/form-data``): read by a library, written in one canonical way.

A body that is written here begins with its boundary, so processes that pass it on need not know the boundary.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import multipart

MAX_PARTS: Final = 256
JSON_FIELDS_PART: Final = "fields"
"""The name of the part that carries all fields of a form as one JSON object."""
MEDIA_TYPE: Final = "multipart/form-data"
_UNSAFE_CHARACTERS: Final = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME: Final = 64
_FIRST_LINE: Final = re.compile(rb"--([A-Za-z0-9'()+_,./:=?-]{1,70})\r\n")
_PARSE_CHUNK_BYTES: Final = 256 * 1024


class FormPart(NamedTuple):
    """One field of a form; a file has a ``filename``."""

    name: str
    data: bytes
    filename: str = ""

    def text(self) -> str:
        """Return the text of a field; raises ValueError if it is not UTF-8."""
        return self.data.decode()


def boundary_from_content_type(content_type: str) -> str:
    """Return the boundary in a form's content type; raises ValueError if it names none, or is not a form's."""
    kind, options = multipart.parse_options_header(content_type)
    if kind != MEDIA_TYPE:
        raise ValueError(f"it is {kind or 'nothing'}, not {MEDIA_TYPE}")
    boundary = str(options.get("boundary", ""))
    if not boundary:
        raise ValueError("its content type names no boundary")
    return boundary


def boundary_from_body(body: bytes) -> str:
    """Return the boundary that a body begins with, as :func:`encode` makes them; raises ValueError if it has none."""
    found = _FIRST_LINE.match(body)
    if found is None:
        raise ValueError("it does not begin with a boundary")
    return found[1].decode("ascii")


def parse(boundary: str, body: bytes, yield_control: Callable[[], object] = bool) -> list[FormPart]:
    """Return the fields in their order; raises ValueError, with a text for the caller, for an incomplete form.

    ``yield_control`` is called for every 256 KiB.
    """
    found: list[FormPart] = []
    pieces: list[bytes] = []
    for field, data in parse_pieces(boundary, _slices(body, yield_control), len(body)):
        if data is None:
            found.append(field._replace(data=b"".join(pieces)))
            pieces.clear()
        else:
            pieces.append(data)
    return found


def _slices(body: bytes, yield_control: Callable[[], object]) -> Iterator[bytes]:
    for start in range(0, len(body), _PARSE_CHUNK_BYTES):
        yield body[start : start + _PARSE_CHUNK_BYTES]
        yield_control()


def parse_pieces(
    boundary: str, body: Iterable[bytes], length: int | None = None
) -> Iterator[tuple[FormPart, bytes | None]]:
    """Yield the fields of a form that is not held in memory: each without data, with a piece of its data; at its end, with None.

    Raises ValueError as :func:`parse` does. ``length``: of the whole body; None if it is not known.
    """
    field = FormPart("", b"")
    with multipart.PushMultipartParser(
        boundary, content_length=-1 if length is None else length, max_segment_count=MAX_PARTS, strict=True
    ) as parser:
        for piece in body:
            for event in parser.parse(piece):
                if isinstance(event, multipart.MultipartSegment):
                    field = FormPart(event.name or "", b"", event.filename or "")
                else:
                    yield field, bytes(event) if event else None


def encode(parts: Iterable[FormPart], boundary: str = "") -> bytes:
    """Return a body with these fields. Unsafe characters are removed from file names."""
    edge = b"--" + (boundary or secrets.token_hex(16)).encode()
    pieces: list[bytes] = []
    for part in parts:
        pieces += [edge, b"\r\n", _head(part), b"\r\n\r\n", part.data, b"\r\n"]
    return b"".join([*pieces, edge, b"--\r\n"])


def prepend_parts(body: bytes, parts: Iterable[FormPart]) -> bytes:
    """Return a canonical body with more fields before its own; raises ValueError if the body is not canonical."""
    boundary = boundary_from_body(body)
    end = len(boundary) + len("----\r\n")
    return encode(parts, boundary)[:-end] + body


def _head(part: FormPart) -> bytes:
    header = f'Content-Disposition: form-data; name="{multipart.content_disposition_quote(part.name)[1:-1]}"'
    if part.filename:
        name = _UNSAFE_CHARACTERS.sub("_", part.filename)[-_LONGEST_NAME:]
        header += f'; filename="{name}"\r\nContent-Type: application/octet-stream'
    return header.encode()
