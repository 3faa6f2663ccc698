"""Files for browsers: each is read once, has an ``ETag``, and is sent with the policy that keeps a page to this server."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final, NamedTuple

import falcon

ASSETS: Final = Path(__file__).parent / "assets"
MEDIA_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": falcon.MEDIA_HTML,
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""Suffix → media type. Files with other suffixes are not sent."""
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Scripts and styles are files of this server, nothing is inline, and all requests go to this server."""
_REVALIDATE: Final = "no-cache"
"""A browser keeps a file, but asks each time whether it has changed."""


class File(NamedTuple):
    """What is sent."""

    data: bytes
    etag: str
    media_type: str


def file_of(data: bytes, media_type: str) -> File:
    """Return a file with this content."""
    return File(data, f'"{hashlib.sha256(data).hexdigest()[:32]}"', media_type)


def read_assets(folder: Path = ASSETS) -> dict[str, File]:
    """Return all files of the pages by their path in ``folder``, such as ``overview/card.js``."""
    found = (path for path in sorted(folder.rglob("*")) if path.suffix in MEDIA_TYPES)
    return {str(path.relative_to(folder)): file_of(path.read_bytes(), MEDIA_TYPES[path.suffix]) for path in found}


def send(file: File, req: falcon.Request, resp: falcon.Response) -> None:
    """Answer with a file, or with 304 if the client already has it."""
    resp.set_header("ETag", file.etag)
    resp.set_header("Cache-Control", _REVALIDATE)
    resp.set_header("X-Content-Type-Options", "nosniff")
    known = [str(each).strip('"') for each in req.if_none_match or ()]
    if "*" in known or file.etag.strip('"') in known:
        resp.status = falcon.HTTP_304
        return
    resp.content_type = file.media_type
    resp.data = file.data


def send_to_page(file: File, req: falcon.Request, resp: falcon.Response) -> None:
    """Answer with a file of a page."""
    resp.set_header("Content-Security-Policy", POLICY)
    resp.set_header("Referrer-Policy", "no-referrer")
    send(file, req, resp)
