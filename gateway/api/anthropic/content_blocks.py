"""The content blocks of Anthropic's messages, as clients send them. Fields without an effect here are not read.

Blocks of tools that Anthropic itself runs (web search, code execution) are missing: nothing here could have made them.
"""

from __future__ import annotations

from typing import Any

import msgspec


class TextBlock(msgspec.Struct, tag_field="type", tag="text"):
    """A text."""

    text: str


class Base64Source(msgspec.Struct, tag_field="type", tag="base64"):
    """A file in the request itself."""

    media_type: str
    data: str


class UrlSource(msgspec.Struct, tag_field="type", tag="url"):
    """A file elsewhere."""

    url: str


class FileSource(msgspec.Struct, tag_field="type", tag="file"):
    """A file of Anthropic's Files API."""

    file_id: str


class PlainTextSource(msgspec.Struct, tag_field="type", tag="text"):
    """A document as text."""

    data: str
    media_type: str = "text/plain"


class ImageBlock(msgspec.Struct, tag_field="type", tag="image"):
    """An image."""

    source: Base64Source | UrlSource | FileSource


class ContentSource(msgspec.Struct, tag_field="type", tag="content"):
    """A document as blocks."""

    content: str | list[TextBlock | ImageBlock]


class DocumentBlock(msgspec.Struct, tag_field="type", tag="document"):
    """A document. ``context`` is about the document, not part of it."""

    source: Base64Source | UrlSource | FileSource | PlainTextSource | ContentSource
    title: str | None = None
    context: str | None = None


class SearchResultBlock(msgspec.Struct, tag_field="type", tag="search_result"):
    """A result of the client's own search."""

    source: str
    title: str
    content: list[TextBlock]


class ThinkingBlock(msgspec.Struct, tag_field="type", tag="thinking"):
    """What the model thought before it answered."""

    thinking: str


class RedactedThinkingBlock(msgspec.Struct, tag_field="type", tag="redacted_thinking"):
    """Thoughts that only Anthropic can read; they are left out."""


class ToolUseBlock(msgspec.Struct, tag_field="type", tag="tool_use"):
    """A call of a tool."""

    id: str
    name: str
    input: dict[str, Any]


SourceBlock = TextBlock | ImageBlock | DocumentBlock | SearchResultBlock
"""Blocks that both users and tools may send."""


class ToolResultBlock(msgspec.Struct, tag_field="type", tag="tool_result"):
    """The result of a tool call. ``is_error`` is not read: the content says what went wrong."""

    tool_use_id: str
    content: str | list[SourceBlock] | None = None


Block = (
    TextBlock
    | ImageBlock
    | DocumentBlock
    | SearchResultBlock
    | ThinkingBlock
    | RedactedThinkingBlock
    | ToolUseBlock
    | ToolResultBlock
)
