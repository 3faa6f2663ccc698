"""Replaces the URLs of images in a message by the images themselves, before it is translated."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.api.anthropic import content_blocks as blocks
from gateway.api.anthropic.message_request import PromptRequest
from gateway.fetching.image_source import ImageSource


def embed_images(request: PromptRequest, image: ImageSource) -> None:
    """Replace the source of every image that has a URL. ``image`` fetches or refuses it, naming the field."""
    for position, message in enumerate(request.messages):
        if not isinstance(message.content, str):
            _embed(message.content, f"messages[{position}].content", image)


def _embed(content: Iterable[object], where: str, image: ImageSource) -> None:
    for index, block in enumerate(content):
        at = f"{where}[{index}]"
        match block:
            case blocks.ImageBlock(source=blocks.UrlSource(url=url)):
                head, _, data = image(url, f"{at}.source.url").partition(";base64,")
                block.source = blocks.Base64Source(head.removeprefix("data:"), data)
            case blocks.ToolResultBlock(content=list(inner)):
                _embed(inner, f"{at}.content", image)
            case blocks.DocumentBlock(source=blocks.ContentSource(content=list(inner))):
                _embed(inner, f"{at}.source.content", image)
