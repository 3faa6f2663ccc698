"""Reads one HTTP/1.1 response of an engine, and passes its parts to the handler of the request.

Invariant: after :meth:`ResponseReader.close`, nothing is passed on any more.
"""

from __future__ import annotations

from typing import Final

import httptools

from workers.engine.connections.exchange import NOTED_HEADERS, EngineExchange

MAX_HEAD_BYTES: Final = 1024 * 1024
_LENGTH_HEADERS: Final = frozenset({b"content-length", b"transfer-encoding"})


class ResponseReader:
    """Reads one response. Its parser calls the methods ``on_…``."""

    def __init__(self, exchange: EngineExchange) -> None:
        """Nothing has arrived of the response to the request of ``exchange``."""
        self._exchange: EngineExchange | None = exchange
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self.begun = False
        """Whether a byte of it has arrived."""
        self.complete = False
        self.keep_alive = False
        """Whether the connection can be used again after it."""
        self._in_body = self._has_length = False
        self._head_size = 0
        """Bytes of the head, as long as it is not complete."""

    @property
    def until_close(self) -> bool:
        """Whether the end of the connection now ends it as HTTP allows."""
        return self._in_body and not self._has_length

    def feed(self, data: memoryview) -> None:
        """Take bytes. Raises ``HttpParserError`` for what is not HTTP, ``HttpParserCallbackError`` if the handler has raised."""
        self.begun = True
        if self._parser is None:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            raise httptools.HttpParserError("it changes to another protocol") from None
        if not self._in_body:
            self._head_size += len(data)
            if self._head_size > MAX_HEAD_BYTES:
                raise httptools.HttpParserError("the head of its response does not end")

    def close(self) -> None:
        """Pass on nothing more."""
        self._exchange = self._parser = None  # the parser refers to this object

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a header that says how the response ends, or what it is; pass on one that follows the body."""
        if self._exchange is None:
            return
        lowered = name.lower()
        if self._in_body:
            self._exchange.handler.trailer(lowered, value)
        elif lowered in _LENGTH_HEADERS:
            self._has_length = True
        elif lowered in NOTED_HEADERS:
            self._exchange.headers[lowered] = value

    def on_headers_complete(self) -> None:
        """Pass on the status, unless it is that of a preliminary response, before the real one."""
        if self._exchange is None or self._parser is None:
            return
        status = self._parser.get_status_code()
        self._in_body = status >= 200
        if self._in_body:
            self._exchange.handler.began(status)
        else:
            self._exchange.headers.clear()

    def on_body(self, body: bytes) -> None:
        """Pass on a part of the body."""
        if self._exchange is not None:
            self._exchange.handler.data(body)

    def on_message_complete(self) -> None:
        """Note that the response is complete. A preliminary one is not counted."""
        self.complete = self._in_body
        self.keep_alive = self._parser is not None and self._parser.should_keep_alive()
