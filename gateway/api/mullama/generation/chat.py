"""``POST /api/chat``: a conversation, with images and tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final, Literal

import msgspec

from gateway.api.common.inference.chat_fields import ChatTool
from gateway.api.mullama.generation.answers import message_fields
from gateway.api.mullama.generation.generation_resource import Generation, GenerationResource, chat_options
from gateway.api.mullama.generation.sampling_fields import GenerationFields
from gateway.http.bodies import body_decoding
from protocol.failures import invalid

_BASE64_ALPHABET: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
_IMAGE_TYPES: Final = {"iVBORw0KGgo": "png", "/9j/": "jpeg", "R0lGOD": "gif", "UklGR": "webp", "Qk": "bmp"}
"""The first characters of each kind of image in base64."""


class CalledFunction(msgspec.Struct):
    """The function of a tool call. ``arguments`` is an object; OpenAI's form, JSON in a string, is also accepted."""

    name: str
    arguments: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))


class MadeCall(msgspec.Struct):
    """A tool call that the model made."""

    function: CalledFunction
    id: str | None = None


class MullamaMessage(msgspec.Struct):
    """One message of a conversation. ``tool_name``: the tool whose result a ``tool`` message contains."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | None = None
    images: list[str] | None = None
    thinking: str | None = None
    tool_calls: list[MadeCall] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class _OpenCall(msgspec.Struct):
    """A tool call without a result so far."""

    id: str
    name: str


def openai_messages(messages: Sequence[MullamaMessage]) -> list[dict[str, Any]]:
    """Return the messages in OpenAI's form; raises ``invalid_request`` naming the wrong field."""
    written = []
    open_calls: list[_OpenCall] = []
    count = 0
    for position, message in enumerate(messages):
        where = f"messages[{position}]"
        entry: dict[str, Any] = {
            "role": message.role,
            "content": content_with_images(message.content or "", message.images or [], f"{where}.images"),
        }
        if message.thinking:
            entry["reasoning_content"] = message.thinking
        if message.tool_calls:
            entry["tool_calls"] = calls = []
            for index, call in enumerate(message.tool_calls):
                arguments = _arguments_text(call.function, f"{where}.tool_calls[{index}].function.arguments")
                open_calls.append(_OpenCall(call.id or f"call_{count}", call.function.name))
                count += 1
                function = {"name": call.function.name, "arguments": arguments}
                calls.append({"id": open_calls[-1].id, "type": "function", "function": function})
        if message.role == "tool":
            entry |= _answered_call(message, open_calls)
        written.append(entry)
    return written


def _answered_call(message: MullamaMessage, open_calls: list[_OpenCall]) -> dict[str, Any]:
    """Return the fields that name the call of a tool's result: the first open call that fits, if there is one."""
    wanted = message.tool_call_id
    fitting = [call for call in open_calls if wanted in (None, call.id)]
    fitting = [call for call in fitting if call.name == message.tool_name] or fitting
    if fitting:
        open_calls.remove(fitting[0])
        wanted = fitting[0].id
    fields = {"tool_call_id": wanted, "name": message.tool_name or (fitting[0].name if fitting else None)}
    return {name: value for name, value in fields.items() if value}


def _arguments_text(function: CalledFunction, where: str) -> str:
    raw = bytes(function.arguments)
    if raw[:1] == b"{":
        return raw.decode()
    if raw[:1] == b'"':
        return str(msgspec.json.decode(raw))
    raise invalid(f"`{where}` must be an object", where)


def content_with_images(text: str, images: Sequence[str], where: str) -> str | list[dict[str, Any]]:
    """Return a message's content: its text, or parts if there are images. ``where`` names the field."""
    if not images:
        return text
    parts: list[dict[str, Any]] = [
        {"type": "image_url", "image_url": {"url": _data_url(image, f"{where}[{index}]")}}
        for index, image in enumerate(images)
    ]
    return [*parts, {"type": "text", "text": text}] if text else parts


def _data_url(image: str, where: str) -> str:
    """Return an image's data URL; raises ``invalid_request`` for anything that is not an image in base64."""
    data = image.partition(";base64,")[2] if image.startswith("data:") else image
    kind = next((kind for start, kind in _IMAGE_TYPES.items() if data.startswith(start)), "")
    # Deleting the alphabet is the fastest way to check megabytes.
    if not kind or data.encode("utf-8", "replace").translate(None, _BASE64_ALPHABET):
        raise invalid(f"`{where}` must be a PNG, JPEG, GIF, WebP or BMP image in base64", where)
    return f"data:image/{kind};base64,{data}"


class MullamaChatRequest(GenerationFields, kw_only=True):
    """A request for the next message of a conversation. ``tools`` have OpenAI's form."""

    messages: list[MullamaMessage] | None = None
    tools: list[ChatTool] | None = None


class ChatResource(GenerationResource):
    """``POST /api/chat``."""

    shape = staticmethod(message_fields)
    counted_as: ClassVar[str] = "chat/completions"
    input_field: ClassVar[str] = "messages"

    @staticmethod
    def read(data: bytes, client: str) -> Generation:
        """See :meth:`GenerationResource.read`."""
        request = body_decoding.decode(data, MullamaChatRequest, client)
        if not request.messages:
            return Generation(request, "", {}, empty=request.messages is not None)
        body: dict[str, Any] = {"messages": openai_messages(request.messages)}
        if request.tools:
            body["tools"] = request.tools
        return Generation(request, "chat/completions", {**body, **chat_options(request)})
