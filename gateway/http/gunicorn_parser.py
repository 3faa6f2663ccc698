"""gunicorn's parser, stricter: it refuses what RFC 9112 wants refused, and shows what a chunked body announces.

gunicorn answers HTTP/1.1 without a ``Host`` (3.2), or with one that cannot be a host, and takes ``gzip, chunked`` for
``chunked`` alone (6.1).
"""

from __future__ import annotations

import re
from typing import Any, Final

from gunicorn.http import RequestParser
from gunicorn.http.body import Body, ChunkedReader
from gunicorn.http.errors import ParseException, UnsupportedTransferCoding
from gunicorn.http.message import Request

_HOST: Final = re.compile(
    r"(?:\[[0-9A-Za-z.:%_~-]+\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)(?::[0-9]{0,5})?",
)
"""A name, an address or nothing, and a port."""


def is_host(text: str) -> bool:
    """Return whether a ``Host`` header may say this."""
    return _HOST.fullmatch(text) is not None


class InvalidHostError(ParseException):  # type: ignore[misc]
    """HTTP/1.1 that does not say for which host it is."""

    def __init__(self, text: str, req: Any) -> None:
        """Say ``text`` to who sent ``req``."""
        super().__init__(text)
        self.req = req


class BodyTooLargeError(Exception):
    """More than the limit was announced."""


class LimitedChunkedReader(ChunkedReader):  # type: ignore[misc]
    """Reads a chunked body; raises :class:`BodyTooLargeError` when its chunks announce more than ``limit`` bytes."""

    limit: int | None = None
    _announced = 0

    def parse_chunk_size(self, unreader: Any, data: bytes | None = None) -> Any:
        """Read the line before a chunk."""
        size, rest = super().parse_chunk_size(unreader, data)
        self._announced += size
        if self.limit is not None and self._announced > self.limit:
            raise BodyTooLargeError
        return size, rest


class _StrictRequest(Request):  # type: ignore[misc]
    body: Any

    def set_body_reader(self) -> None:
        """Look at the whole head, which is read now."""
        hosts = [value for name, value in self.headers if name == "HOST"]
        if not hosts and self.version >= (1, 1):
            raise InvalidHostError("the Host header is missing", self)
        if hosts and not is_host(hosts[0]):
            raise InvalidHostError("the Host header is no name or address with or without a port", self)
        try:
            super().set_body_reader()
            if isinstance(self.body.reader, ChunkedReader):
                self._refuse_codings()
                self.body = Body(LimitedChunkedReader(self, self.unreader))
        except UnsupportedTransferCoding as problem:
            problem.req = self  # its answer is under the request's own id
            raise

    def _refuse_codings(self) -> None:
        for name, value in self.headers:
            if name == "TRANSFER-ENCODING" and value.strip(" \t").lower() != "chunked":
                raise UnsupportedTransferCoding(value)


class GunicornParser(RequestParser):  # type: ignore[misc]
    """The requests of one connection."""

    mesg_class = _StrictRequest
