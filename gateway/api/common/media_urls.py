"""Media in chat messages: an engine must not fetch what a client names, because it would ask machines that the client cannot reach."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from gateway.media.image_source import ImageSource, is_inline
from protocol.failures import invalid


def with_inline_media(data: bytes, contents: Iterable[object], image: ImageSource) -> bytes:
    """Return ``data``, the JSON of a request whose ``messages`` have these contents, with the images of all URLs in it.

    ``image`` fetches or refuses them.  Raises ``invalid_request`` for recordings and videos that are no ``data:`` URLs.
    """
    fetched: dict[tuple[int, int], str] = {}
    for position, content in enumerate(contents):
        if not isinstance(content, list):
            continue
        for index, part in enumerate(content):
            where = f"messages[{position}].content[{index}]"
            for key, url in _media_urls(part):
                if is_inline(url):
                    continue
                if key != "image_url":
                    reason = (
                        f"`{where}.{key}`: only images are fetched: send other media as a data URL (data:…;base64,…)"
                    )
                    raise invalid(reason, f"{where}.{key}")
                fetched[position, index] = image(url, f"{where}.{key}")
    return _replaced(data, fetched) if fetched else data


def _media_urls(part: object) -> Iterator[tuple[str, str]]:
    """Yield field and URL of the media in a part; what is not of the known form is the engine's to refuse."""
    for key, media in part.items() if isinstance(part, dict) else []:
        url = media.get("url") if isinstance(media, dict) else media if key.endswith("_url") else None
        if isinstance(url, str):
            yield key, url


def _replaced(data: bytes, urls: dict[tuple[int, int], str]) -> bytes:
    request: dict[str, Any] = msgspec.json.decode(data)
    for (position, index), url in urls.items():
        part = request["messages"][position]["content"][index]
        given = part["image_url"]
        part["image_url"] = {**given, "url": url} if isinstance(given, dict) else {"url": url}
    return msgspec.json.encode(request)
