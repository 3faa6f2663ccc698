"""Images of chat messages given by URL: fetched or refused before the request goes on.

An engine must not fetch what a client names, because it could reach machines that the client cannot.
``gateway/requests/request_media.py`` accepts no media other than those in the request itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from gateway.fetching.image_source import ImageSource, is_inline


def with_inline_media(data: bytes, contents: Iterable[object], image: ImageSource) -> bytes:
    """Return ``data``, the JSON of a request with these contents as ``messages``, with images in place of their URLs.

    ``image`` fetches or refuses them.
    """
    fetched: dict[tuple[int, int], str] = {}
    for position, content in enumerate(contents):
        if not isinstance(content, list):
            continue
        for index, part in enumerate(content):
            url = _image_url(part.get("image_url")) if isinstance(part, dict) else None
            if url is not None and not is_inline(url):
                fetched[position, index] = image(url, f"messages[{position}].content[{index}].image_url")
    return _replaced(data, fetched) if fetched else data


def _image_url(media: object) -> str | None:
    url = media.get("url") if isinstance(media, dict) else media
    return url if isinstance(url, str) else None


def _replaced(data: bytes, urls: dict[tuple[int, int], str]) -> bytes:
    request: dict[str, Any] = msgspec.json.decode(data)
    for (position, index), url in urls.items():
        part = request["messages"][position]["content"][index]
        given = part["image_url"]
        part["image_url"] = {**given, "url": url} if isinstance(given, dict) else {"url": url}
    return msgspec.json.encode(request)
