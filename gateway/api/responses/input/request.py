"""The body of ``POST responses``: its fields, and which of them this server does not support. Pure."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from gateway.api.common.inference.sampling_fields import SamplingFields
from protocol.failures import invalid
from protocol.requests.grammar_limits import check_size
from protocol.requests.request_limits import MAX_ENTRIES

LOGPROBS: Final = "message.output_text.logprobs"
"""The value of ``include`` that asks for log probabilities."""
INCLUDABLE: Final = (
    LOGPROBS,
    "reasoning.encrypted_content",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
)
"""Known values of ``include``. Those about hosted tools add nothing, because no response has such items."""
NOT_SERVED: Final = {
    "conversation": "send `previous_response_id` or the whole `input`",
    "prompt": "this server stores no prompts: send `instructions` and `input`",
    "context_management": "this server compacts nothing: send a shorter `input`, or `truncation` auto",
    "moderation": "there is no moderation model",
}
"""Field that would change the answer → the alternative."""
HOSTED_TOOL_ADVICE: Final = "this server runs no tools: run it yourself and offer it as a function"
MAX_METADATA: Final = 16
MAX_ITEMS: Final = 2 * MAX_ENTRIES["messages"]
"""How many items are allowed: as many as a chat may have messages. Thoughts and calls are parts of a message."""

Text64 = Annotated[str, Meta(max_length=64)]
Text512 = Annotated[str, Meta(max_length=512)]


class FunctionTool(msgspec.Struct):
    """A function that the client runs."""

    name: Annotated[str, Meta(min_length=1, max_length=128)]
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    description: str | None = None


class NamespaceTool(msgspec.Struct):
    """Tools under a common name, such as those of one MCP server that the client is connected to."""

    name: Annotated[str, Meta(min_length=1, max_length=128)]
    tools: list[dict[str, Any]]


class InputGrammar(msgspec.Struct):
    """The form of a custom tool's input."""

    type: Literal["text", "grammar"]
    syntax: str | None = None
    definition: str | None = None


class CustomTool(msgspec.Struct):
    """A tool that the client runs on a text, which need not be JSON."""

    name: Annotated[str, Meta(min_length=1, max_length=128)]
    description: str | None = None
    format: InputGrammar | None = None


class TextFormat(msgspec.Struct):
    """``text.format``."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None
    description: str | None = None


class TextOptions(msgspec.Struct):
    """``text``."""

    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningOptions(msgspec.Struct):
    """``reasoning``. Models know different efforts, so any word is passed to the model."""

    effort: Text64 | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None


class ToolChoice(msgspec.Struct):
    """A ``tool_choice`` that names functions."""

    type: str
    name: str | None = None
    mode: Literal["auto", "required"] | None = None
    tools: list[dict[str, Any]] | None = None


class ResponseRequest(SamplingFields, kw_only=True):
    """``POST responses``, and the sampling fields of chat completions. Other fields are ignored."""

    model: str | None = None
    input: str | Annotated[list[dict[str, Any]], Meta(extra_json_schema={"maxItems": MAX_ITEMS})] | None = None
    instructions: str | None = None
    stream: bool | None = None
    store: bool | None = None
    background: bool | None = None
    previous_response_id: Annotated[str, Meta(max_length=128)] | None = None
    max_output_tokens: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    max_tool_calls: Annotated[int, Meta(ge=1)] | None = None
    stop: str | list[str] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    truncation: Literal["auto", "disabled"] | None = None
    include: list[str] | None = None
    metadata: dict[Text64, Text512] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: Literal["in_memory", "24h"] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    conversation: Any = None
    prompt: Any = None
    context_management: Any = None
    moderation: Any = None

    @property
    def wants_logprobs(self) -> bool:
        """Whether the answer's tokens come with log probabilities."""
        return LOGPROBS in (self.include or ())

    @property
    def wants_store(self) -> bool:
        """Whether to store the response, as OpenAI does by default."""
        return self.store is not False

    def check(self) -> None:
        """Raise ``invalid_request`` for what the types cannot express, and for what is not supported."""
        for name, advice in NOT_SERVED.items():
            if getattr(self, name):
                raise invalid(f"`{name}` is not served here: {advice}", name)
        for value in self.include or ():
            if value not in INCLUDABLE:
                raise invalid(f"`include` can be {', '.join(INCLUDABLE)}", "include")
        if len(self.metadata or ()) > MAX_METADATA:
            raise invalid(f"`metadata` takes up to {MAX_METADATA} keys", "metadata")
        if self.top_logprobs and not self.wants_logprobs:
            raise invalid(f"`top_logprobs` needs {LOGPROBS} in `include`", "top_logprobs")
        if isinstance(self.input, list):
            check_size("input", "items", len(self.input), MAX_ITEMS)
        self._check_format()
        if self.background and self.store is False:
            raise invalid("`background` needs `store`: the response is read later", "store")

    def _check_format(self) -> None:
        wanted = self.text.format if self.text else None
        if wanted is None or wanted.type != "json_schema":
            return
        if wanted.schema is None:
            raise invalid("`text.format.schema` is required for json_schema", "text.format.schema")
        if not wanted.name:
            raise invalid("`text.format.name` is required for json_schema", "text.format.name")
