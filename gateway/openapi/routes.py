"""``/openapi.json`` and ``/docs``: made when the first client asks, then kept.

They contain no secrets and need no key.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import falcon

from gateway.api.common.dialect import Dialect, Routes
from gateway.http.errors import ErrorFormats
from gateway.http.request_context import request_context

_FOLDER: Final = Path(__file__).parent
_SCRIPT: Final = "/*script*/"
_STYLE: Final = "/*style*/"
DOCUMENT_PATH: Final = "/openapi.json"
PAGE_PATH: Final = "/docs"
_REVALIDATE: Final = "no-cache"
"""A browser keeps the document, but asks each time whether it has changed."""


class RouteTable(NamedTuple):
    """All routes of the gateway."""

    own: Mapping[str, object]
    """Routes outside all dialects: path → resource."""
    dialects: list[tuple[Dialect, Routes]]
    formats: ErrorFormats


class _Kept(NamedTuple):
    data: bytes
    etag: str


def _kept(data: bytes) -> _Kept:
    return _Kept(data, f'"{hashlib.sha256(data).hexdigest()[:32]}"')


def _answer(req: falcon.Request, resp: falcon.Response, kept: _Kept, content_type: str) -> None:
    """Answer with all of it, or with 304 if the client already has it."""
    resp.set_header("ETag", kept.etag)
    resp.set_header("Cache-Control", _REVALIDATE)
    resp.set_header("X-Content-Type-Options", "nosniff")
    known = [str(each).strip('"') for each in req.if_none_match or ()]
    if "*" in known or kept.etag.strip('"') in known:
        resp.status = falcon.HTTP_304
        return
    resp.content_type = content_type
    resp.data = kept.data


class DocumentResource:
    """``GET /openapi.json``."""

    def __init__(self, table: RouteTable) -> None:
        """Describe the routes of ``table``."""
        self._table = table
        self._kept: dict[bool, _Kept] = {}
        """Key: whether callers need an API key."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer with the document. It names the ways to send a key if the server has keys."""
        keys = request_context(req.env).keys_needed
        if keys not in self._kept:
            from gateway.openapi.document import document_of  # noqa: PLC0415 - memory that most gateways never need

            self._kept[keys] = _kept(document_of(self._table, keys=keys))
        _answer(req, resp, self._kept[keys], falcon.MEDIA_JSON)


class PageResource:
    """``GET /docs``: a page that shows the document."""

    def __init__(self) -> None:
        """Read nothing yet."""
        self._kept: _Kept | None = None
        self._policy = ""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer with the page. Its policy allows only its own script and style, and requests to this server."""
        if self._kept is None:
            page, self._policy = docs_page()
            self._kept = _kept(page)
        resp.set_header("Content-Security-Policy", self._policy)
        resp.set_header("Referrer-Policy", "no-referrer")
        _answer(req, resp, self._kept, falcon.MEDIA_HTML)


def docs_page() -> tuple[bytes, str]:
    """Return the page and its ``Content-Security-Policy``."""
    page, script, style = (_read(name) for name in ("docs.html", "docs.js", "docs.css"))
    policy = [
        "default-src 'none'",
        f"script-src '{_hash(script)}'",
        f"style-src '{_hash(style)}'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
    return page.replace(_STYLE, style).replace(_SCRIPT, script).encode(), "; ".join(policy)


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Return the hash of an inline script or style in a policy's form."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
