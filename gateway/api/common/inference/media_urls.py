"""Media in chat messages: an engine must not fetch what a client names, because it would ask machines that the client cannot reach."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from gateway.media.image_source import ImageSource, is_inline
from protocol.failures import invalid


def with_inline_media(data: bytes, contents: Iterable[object], image: ImageSource) -> bytes:
    """Return ``data``, the JSON of a request whose ``messages`` have these contents, with the images of all URLs in it.

    ``image`` fetches or refuses them.  Raises ``invalid_request`` for images without a URL, and for recordings and videos that are
    no ``data:`` URLs.
    """
    fetched: dict[tuple[int, int], str] = {}
    for position, content in enumerate(contents):
        if not isinstance(content, list):
            continue
        for index, part in enumerate(content):
            where = f"messages[{position}].content[{index}]"
            if not isinstance(part, dict):
                continue
            if part.get("type") == "image_url" and _image_url(part.get("image_url")) is None:
                raise invalid(f"`{where}.image_url` needs a `url`: data:image/png;base64,…", f"{where}.image_url")
            for key, media in part.items():
                check_other_media(key, media, where)
                url = _image_url(media) if key == "image_url" else None
                if url is not None and not is_inline(url):
                    fetched[position, index] = image(url, f"{where}.{key}")
    return _replaced(data, fetched) if fetched else data


def check_other_media(key: str, media: object, where: str) -> None:
    """Raise ``invalid_request`` for a field of a part that names media by a URL and is no image.

    llama-server also fetches a URL that it finds in the ``data`` of a video or a recording; base64 has no colon. Fields of
    an unknown form are left for the engine to refuse.
    """
    if isinstance(media, dict):
        given = [(name, value) for name, value in media.items() if (key, name) != ("image_url", "url")]
    else:
        given = [("url", media)] if key.endswith("_url") and key != "image_url" else []
    for name, value in given:
        if isinstance(value, str) and not is_inline(value) and _may_be_url(name, value):
            reason = f"`{where}.{key}`: only images are fetched: send other media as a data URL (data:…;base64,…)"
            raise invalid(reason, f"{where}.{key}")


def _may_be_url(name: str, value: str) -> bool:
    return name == "url" or (name == "data" and ":" in value) or "://" in value


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
