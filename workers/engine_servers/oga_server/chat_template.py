"""What a model's folder says about its chat template: whether there is one, and how the model writes tool calls."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from protocol.failures import DECODE_ERRORS
from workers.tool_calls.formats import ToolCallFormat, format_of_template


class ChatTemplate(NamedTuple):
    """A model's chat template."""

    exists: bool
    tool_format: ToolCallFormat | None
    """How the model writes calls; None if it takes no tools, or uses a format that is not known here."""
    shows_calls: bool
    """Whether it writes the tool calls of past messages."""
    takes_custom_tools: bool
    """Whether it also reads the tools from a variable of that name."""
    special_markers: frozenset[str]
    """Markers of the tool format that are special tokens, which the tokenizer does not show."""


class _TokenizerConfig(msgspec.Struct):
    chat_template: str | list[dict[str, Any]] | None = None


class _AddedToken(msgspec.Struct):
    content: str = ""
    special: bool = False


class _Tokenizer(msgspec.Struct):
    added_tokens: Sequence[_AddedToken] = ()


_config: Final = msgspec.json.Decoder(_TokenizerConfig).decode
_tokenizer: Final = msgspec.json.Decoder(_Tokenizer).decode


def read_chat_template(folder: Path) -> ChatTemplate:
    """Read a model's files. A missing or broken file yields nothing."""
    text = _template_text(folder)
    form = format_of_template(text)
    special: frozenset[str] = frozenset()
    if form is not None:
        special = _special_tokens(folder).intersection(form.markers)
    return ChatTemplate(bool(text), form, "tool_calls" in text, "custom_tools" in text, special)


def _template_text(folder: Path) -> str:
    try:
        return (folder / "chat_template.jinja").read_text("utf-8")
    except (OSError, ValueError):
        pass
    try:
        found = _config((folder / "tokenizer_config.json").read_bytes()).chat_template
    except (OSError, *DECODE_ERRORS):
        return ""
    return found if isinstance(found, str) else "\n".join(str(each.get("template", "")) for each in found or [])


def _special_tokens(folder: Path) -> frozenset[str]:
    try:
        tokens = _tokenizer((folder / "tokenizer.json").read_bytes()).added_tokens
    except (OSError, *DECODE_ERRORS):
        return frozenset()
    return frozenset(token.content for token in tokens if token.special)
