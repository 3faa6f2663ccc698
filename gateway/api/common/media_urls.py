"""Media in chat messages: an engine must not fetch what a client names, because it would ask machines that the client cannot reach."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from protocol.failures import invalid


def check_media_urls(contents: Iterable[object], field: str = "messages") -> None:
    """Raise ``invalid_request`` for a picture, recording or video in the contents of messages that is not a ``data:`` URL."""
    for position, content in enumerate(contents):
        if isinstance(content, list) and any(not url.lower().startswith("data:") for url in _media_urls(content)):
            reason = "media are not fetched from elsewhere: send their bytes as a `data:` URL (data:image/png;base64,…)"
            raise invalid(reason, f"{field}[{position}].content")


def _media_urls(content: list[object]) -> Iterator[str]:
    """Yield the URLs in a message's content; what is not of the known form is the engine's to refuse."""
    for part in content:
        for key, media in part.items() if isinstance(part, dict) else []:
            url = media.get("url") if isinstance(media, dict) else media if key.endswith("_url") else None
            if isinstance(url, str):
                yield url
