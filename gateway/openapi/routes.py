"""``/openapi.json``: made when the first client asks, then kept. It contains no secrets and needs no key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import falcon

from gateway.api.common.dialect import Dialect, Routes
from gateway.http.errors import ErrorFormats
from gateway.http.request_context import request_context
from gateway.page.files import File, file_of, send

DOCUMENT_PATH: Final = "/openapi.json"


class RouteTable(NamedTuple):
    """All routes of the gateway."""

    own: Mapping[str, object]
    """Routes outside all dialects: path → resource."""
    dialects: list[tuple[Dialect, Routes]]
    formats: ErrorFormats


class DocumentResource:
    """``GET /openapi.json``."""

    def __init__(self, table: RouteTable) -> None:
        """Describe the routes of ``table``."""
        self._table = table
        self._kept: dict[bool, File] = {}
        """Key: whether callers need an API key."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer with the document. It names the ways to send a key if the server has keys."""
        keys = request_context(req.env).keys_needed
        if keys not in self._kept:
            from gateway.openapi.document import document_of  # noqa: PLC0415 - memory that most gateways never need

            self._kept[keys] = file_of(document_of(self._table, keys=keys), falcon.MEDIA_JSON)
        send(self._kept[keys], req, resp)
