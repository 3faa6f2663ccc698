"""The parts of a chat completion in OpenAI's form, on every route. What is not checked here, the engine checks.

Images given by URL are fetched or refused before the request goes on. An engine must not fetch what a client names, because it
could reach machines that the client cannot. ``gateway/requests/request_media.py`` accepts no media other than those in the request.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec

from gateway.fetching.image_source import ImageSource, is_inline
from gateway.http.bodies.null_fields import NULL_IS_A_VALUE, NULL_IS_ABSENT
from protocol.failures import invalid

_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_messages: Final = msgspec.json.Decoder(list[dict[str, Any]]).decode

EngineObject = Annotated[dict[str, Any], NULL_IS_ABSENT]
"""An object for engines that contains no data of clients."""


class ChatFunctionCall(msgspec.Struct):
    """The function of a call."""

    name: str
    arguments: Any = None
    """JSON in a string; some engines also accept the object itself."""


class ChatToolCall(msgspec.Struct):
    """A tool call that the model made."""

    function: ChatFunctionCall | None = None
    id: str | None = None
    type: str | None = None


class TemplateMessage(msgspec.Struct):
    """A message for a chat template. An assistant's content may be null if it has tool calls instead."""

    role: str
    content: Annotated[str | list[EngineObject] | None, NULL_IS_A_VALUE] = None
    tool_calls: list[ChatToolCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    reasoning_content: str | None = None


class ChatMessage(TemplateMessage):
    """One message of a conversation to be continued."""

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
    """A schema and its purpose."""

    name: str | None = None
    description: str | None = None
    schema: Any = None
    strict: bool | None = None


class ChatAnswerFormat(msgspec.Struct):
    """The form of the answer's text. A schema directly in it is llama.cpp's way."""

    type: str | None = None
    json_schema: ChatSchema | None = None
    schema: Any = None


def check_tools(tools: Sequence[ChatTool]) -> None:
    """Raise ``invalid_request`` for a tool that is not a function, naming the tool."""
    for position, tool in enumerate(tools):
        where = f"tools[{position}].type"
        if tool.type != "function":
            raise invalid(f"`{where}`: {tool.type[:80]} is not served here: offer a function", where)


def with_refusals_as_texts(data: bytes) -> bytes:
    """Return the JSON of a chat with an assistant's refusals turned into text, which engines know."""
    if b'"refusal"' not in data:
        return data
    fields = _fields(data)
    messages = _messages(fields["messages"])
    for message in messages:
        if isinstance(message.get("content"), list):
            message["content"] = [_without_refusal(part) for part in message["content"]]
    return msgspec.json.encode({**fields, "messages": messages})


def _without_refusal(part: dict[str, Any]) -> dict[str, Any]:
    is_refusal = part.get("type") == "refusal" and isinstance(part.get("refusal"), str)
    return {"type": "text", "text": part["refusal"]} if is_refusal else part


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
