"""Answers that are streams: the headers with which proxies and browsers pass each piece on at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the command line imports this file through declared routes
    import falcon


def set_stream(resp: falcon.Response, stream: Iterable[bytes], media_type: str) -> None:
    """Make ``resp`` a stream, which nothing between this server and its client may buffer or keep."""
    resp.stream = stream
    resp.content_type = media_type
    resp.set_header("Cache-Control", "no-cache")
    resp.set_header("X-Accel-Buffering", "no")
