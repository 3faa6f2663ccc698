"""The requests of ``messages`` and ``messages/count_tokens``: their fields, their content blocks and their checks.

Anthropic's fields that change nothing here are accepted but not read: ``metadata`` beyond its type, ``cache_control``,
``service_tier``, ``effort`` and the like. Sampling fields that llama.cpp's users expect are passed on. Blocks of tools that
Anthropic itself runs (web search, code execution) are missing: nothing here could have made them.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from gateway.api.common.inference.sampling_fields import Fraction, Penalty
from gateway.api.common.operations import entries_of
from protocol.failures import invalid


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


THREAD: Final = "thread"
"""The field that asks to store the conversation, and to continue it.

The tool runners of Anthropic's packages send it. If the error says that it is not supported, they send the whole
conversation.
"""


class Message(msgspec.Struct):
    """One message of the conversation."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Block]

    @property
    def blocks(self) -> list[Block]:
        """The content as blocks."""
        return [TextBlock(self.content)] if isinstance(self.content, str) else self.content


class Tool(msgspec.Struct):
    """A tool that the client runs if it has no type, or the type ``custom``. Tools of other types are Anthropic's."""

    name: str
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None

    @property
    def is_run_by_anthropic(self) -> bool:
        """Whether Anthropic's servers run it."""
        return (self.type or "").startswith(_RUN_BY_ANTHROPIC)


_RUN_BY_ANTHROPIC: Final = (
    "web_search_",
    "web_fetch_",
    "code_execution_",
    "tool_search_tool_",
    "advisor_",
    "mcp_toolset",
)
"""Prefixes of the types of tools that Anthropic's servers run."""


class MessageToolChoice(msgspec.Struct):
    """Whether the model may or must call tools, and which."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(msgspec.Struct):
    """Whether the model thinks before it answers, and for how many tokens at most."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None


class OutputFormat(msgspec.Struct):
    """The form of the answer's text."""

    type: Literal["json_schema"]
    schema: dict[str, Any]


class OutputConfig(msgspec.Struct):
    """How the answer's text is to be."""

    format: OutputFormat | None = None


class Metadata(msgspec.Struct):
    """About the request."""

    user_id: str | None = None


class PromptRequest(msgspec.Struct, kw_only=True):
    """``POST messages/count_tokens``, and the fields that it shares with ``POST messages``."""

    messages: Annotated[list[Message], entries_of("messages")]
    model: str | None = None
    system: str | list[TextBlock] | None = None
    tools: list[Tool] | None = None
    tool_choice: MessageToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    mcp_servers: list[Any] | None = None
    thread: Any = None
    chat_template_kwargs: dict[str, Any] | None = None

    @property
    def client_tools(self) -> list[Tool]:
        """The tools that the model may call.

        Tools that Anthropic runs are left out if there are others: agents send both, and a model can do without a tool
        that it need not call.
        """
        return [tool for tool in self.tools or () if not tool.is_run_by_anthropic]

    @property
    def one_call(self) -> bool:
        """Whether the answer may have at most one tool call."""
        return self.tool_choice is not None and bool(self.tool_choice.disable_parallel_tool_use)

    def check(self) -> None:
        """Raise ``invalid_request`` for what the types cannot express."""
        if self.thread is not None:
            raise invalid(
                "`thread`: this server keeps no conversations; send the whole conversation, without `thread`", THREAD
            )
        if not self.messages:
            raise invalid("`messages` is empty", "messages")
        if self.mcp_servers:
            raise invalid(
                "`mcp_servers`: this server does not connect to any; offer tools that the client runs in `tools`",
                "mcp_servers",
            )
        others = bool(self.client_tools)
        for position, tool in enumerate(self.tools or []):
            if not (others and tool.is_run_by_anthropic):
                self._check_tool(tool, f"tools[{position}]")
        if self.tool_choice is not None:
            self._check_tool_choice(self.tool_choice)
        if self.thinking is not None and self.thinking.type == "enabled" and self.thinking.budget_tokens is None:
            raise invalid("`thinking.budget_tokens` is required", "thinking.budget_tokens")

    @staticmethod
    def _check_tool(tool: Tool, where: str) -> None:
        if tool.type not in (None, "custom"):
            raise invalid(f"`{where}`: {tool.type[:80]} is Anthropic's own tool, which no model here knows", where)
        if not tool.name:
            raise invalid(f"`{where}.name` is empty", f"{where}.name")
        if tool.input_schema is None:
            raise invalid(f"`{where}.input_schema` is required", f"{where}.input_schema")

    def _check_tool_choice(self, choice: MessageToolChoice) -> None:
        if choice.type in ("any", "tool") and not self.tools:
            raise invalid("`tool_choice` asks for a call, and there are no `tools`", "tool_choice")
        if choice.type == "tool" and choice.name not in {tool.name for tool in self.client_tools}:
            raise invalid("`tool_choice.name` must be the name of one of the `tools`", "tool_choice.name")


class MessageRequest(PromptRequest, kw_only=True):
    """``POST messages``."""

    max_tokens: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    stream: bool | None = None
    stop_sequences: list[Annotated[str, Meta(min_length=1)]] | None = None
    metadata: Metadata | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Fraction | None = None
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    min_p: Fraction | None = None
    repeat_penalty: Annotated[float, Meta(ge=1, le=2)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    seed: int | None = None
