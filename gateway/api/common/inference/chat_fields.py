"""The parts of a chat completion in OpenAI's form, whichever route they come by; what is not checked here, the engine checks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from gateway.http.bodies.null_fields import NULL_IS_A_VALUE, NULL_IS_ABSENT

EngineObject = Annotated[dict[str, Any], NULL_IS_ABSENT]
"""An object that engines read, and that has no data of clients in it."""


class ChatFunctionCall(msgspec.Struct):
    """The function of a call."""

    name: str
    arguments: Any = None
    """JSON in a string; some engines also take the object itself."""


class ChatToolCall(msgspec.Struct):
    """A call of a tool that the model made."""

    function: ChatFunctionCall | None = None
    id: str | None = None
    type: str | None = None


class TemplateMessage(msgspec.Struct):
    """A message for a chat template. An assistant's may have null as its content: it has calls of tools instead."""

    role: str
    content: Annotated[str | list[EngineObject] | None, NULL_IS_A_VALUE] = None
    tool_calls: list[ChatToolCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    reasoning_content: str | None = None


class ChatMessage(TemplateMessage):
    """One message of a conversation that is to be continued."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]


class ChatToolFunction(msgspec.Struct, omit_defaults=True):
    """A function that the client runs; ``parameters`` is a JSON schema."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ChatTool(msgspec.Struct):
    """A tool that the model may call."""

    type: str = "function"
    function: ChatToolFunction | None = None


class ChatSchema(msgspec.Struct):
    """A schema, and what it is for."""

    name: str | None = None
    description: str | None = None
    schema: Any = None
    strict: bool | None = None


class ChatAnswerFormat(msgspec.Struct):
    """The form of the answer's text. A schema directly below it is llama.cpp's way."""

    type: str | None = None
    json_schema: ChatSchema | None = None
    schema: Any = None
