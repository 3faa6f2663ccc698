"""The items of a request's ``input``: their types, their checks, and their translation to messages of a chat. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal

import msgspec

from gateway.api.responses.input import content_parts
from gateway.api.responses.input.tools import custom_arguments, engine_name
from gateway.fetching.image_source import ImageSource, only_inline
from gateway.http.bodies import body_decoding
from protocol.failures import invalid

Item = dict[str, Any]
Message = dict[str, Any]
NewId = Callable[[str], str]
"""Returns a new id with a prefix and an underscore."""
_SYSTEM_ROLES: Final = ("system", "developer")


class MessageItem(msgspec.Struct):
    """A message of the conversation."""

    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[dict[str, Any]]


class FunctionCallItem(msgspec.Struct):
    """A call that the model made."""

    call_id: str
    name: str
    arguments: str
    namespace: str | None = None


class CustomToolCallItem(msgspec.Struct):
    """A call of a custom tool that the model made."""

    call_id: str
    name: str
    input: str
    namespace: str | None = None


class CallOutputItem(msgspec.Struct):
    """The result of a tool."""

    call_id: str
    output: str | list[dict[str, Any]]


class _TextPart(msgspec.Struct):
    text: str


class ReasoningItem(msgspec.Struct):
    """What the model thought before it answered."""

    summary: list[_TextPart] = []
    content: list[_TextPart] | None = None

    @property
    def text(self) -> str:
        """Return the thoughts, or else their summary."""
        return "\n".join(part.text for part in self.content or self.summary)


ITEM_TYPES: Final[dict[str, tuple[type[msgspec.Struct], str]]] = {
    "message": (MessageItem, "msg"),
    "function_call": (FunctionCallItem, "fc"),
    "function_call_output": (CallOutputItem, "fco"),
    "custom_tool_call": (CustomToolCallItem, "ctc"),
    "custom_tool_call_output": (CallOutputItem, "ctco"),
    "reasoning": (ReasoningItem, "rs"),
}
"""Type of an item → its fields, and the prefix of its id."""


def read_items(
    given: str | Sequence[Item] | None, earlier: Iterable[Item], new_id: NewId, image: ImageSource = only_inline
) -> list[Item]:
    """Return the items of ``input``, each with a type and an id, with references to ``earlier`` items resolved.

    Image URLs stay as they are; ``image`` refuses those that cannot be used. Raises ``invalid_request`` naming the item
    and the wrong field.
    """
    if isinstance(given, str):
        given = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": given}]}]
    if not given:
        raise invalid("`input` is required: a text, or a list of items", "input")
    _check_named_once(given)
    known = {item["id"]: item for item in earlier if "id" in item}
    return [_read_item(item, f"input[{position}]", known, new_id, image) for position, item in enumerate(given)]


def references(given: str | Sequence[Item] | None) -> list[str]:
    """Return the ids of the stored items that ``input`` refers to."""
    items = [] if given is None or isinstance(given, str) else given
    return [str(item.get("id")) for item in items if _kind(item) == "item_reference"]


def _check_named_once(given: Sequence[Item]) -> None:
    """Raise ``invalid_request`` for a second reference to one item: a short list of them could become gigabytes."""
    named: set[str] = set()
    for position, item in enumerate(given):
        if _kind(item) == "item_reference" and isinstance(item.get("id"), str):
            if item["id"] in named:
                where = f"input[{position}]"
                raise invalid(f"`{where}` refers to an item that is already in `input`: name it once", where)
            named.add(item["id"])


def _kind(item: Item) -> Any:
    kind = item.get("type")
    if kind is None or kind == "":
        return "message" if "role" in item else "item_reference"
    return kind


def _read_item(item: Item, where: str, known: dict[str, Item], new_id: NewId, image: ImageSource) -> Item:
    kind, item_id = _kind(item), item.get("id")
    if not isinstance(item_id, str | None):
        raise invalid(f"`{where}.id` must be a string", f"{where}.id")
    if kind == "item_reference":
        referred = known.get(item_id or "")
        if referred is None:
            raise invalid(f"`{where}` refers to an item that is not stored: send the item itself", where)
        return referred
    if not isinstance(kind, str) or kind not in ITEM_TYPES:
        raise invalid(f"`{where}`: items of type {str(kind)[:64]} are not served here", where)
    fields, prefix = ITEM_TYPES[kind]
    read = body_decoding.convert(item, fields, where)
    whole = {"type": kind, **item, "id": item_id or new_id(prefix)}
    whole["type"] = kind  # the item may have had it as null or empty
    if isinstance(read, MessageItem):
        if isinstance(read.content, str):
            part = "output_text" if read.role == "assistant" else "input_text"
            whole["content"] = [{"type": part, "text": read.content}]
        content_parts.chat_content(whole["content"], f"{where}.content", read.role, image)  # raises for a wrong one
    elif isinstance(read, CallOutputItem) and not isinstance(read.output, str):
        content_parts.text_of(read.output, f"{where}.output")
    if kind != "reasoning":
        whole["status"] = whole.get("status") or "completed"
    return whole


class _Chat:
    """The messages of a chat, built as items are added.

    An assistant's thoughts, text and calls are separate items here, but one message of a chat. Templates accept at most
    one system message, at the beginning, so everything that precedes the conversation is joined.
    """

    def __init__(self, instructions: str | None, image: ImageSource) -> None:
        self._image = image
        self._system = [instructions] if instructions else []
        self._messages: list[Message] = []
        self._reasoning = ""
        self._text: str | None = None
        self._calls: list[dict[str, Any]] = []

    def add(self, item: Item) -> None:
        kind = item["type"]
        if kind == "reasoning":
            self._next_turn()
            self._reasoning = body_decoding.convert(item, ReasoningItem, "input").text
        elif kind in ("function_call", "custom_tool_call"):
            arguments = item["arguments"] if kind == "function_call" else custom_arguments(item["input"])
            function = {"name": engine_name(item["name"], item.get("namespace")), "arguments": arguments}
            self._calls.append({"id": item["call_id"], "type": "function", "function": function})
        elif kind in ("function_call_output", "custom_tool_call_output"):
            self._end_turn()
            output = content_parts.text_of(item["output"], "input")
            self._messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": output})
        elif item["role"] == "assistant":
            self._next_turn()
            self._text = content_parts.text_of(item["content"], "input")
        else:
            self._end_turn()
            content = content_parts.chat_content(item["content"], "input", item["role"], self._image)
            self._add_message(item["role"], content)

    def messages(self) -> list[Message]:
        self._end_turn()
        system = [{"role": "system", "content": "\n\n".join(self._system)}] if self._system else []
        return system + self._messages

    def _add_message(self, role: str, content: str | list[dict[str, Any]]) -> None:
        if role not in _SYSTEM_ROLES:
            self._messages.append({"role": "user", "content": content})
        elif self._messages:
            self._messages.append({"role": "system", "content": content})
        else:
            self._system.append(str(content))

    def _next_turn(self) -> None:
        if self._text is not None or self._calls:
            self._end_turn()

    def _end_turn(self) -> None:
        # No template can show thoughts alone.
        if self._text is not None or self._calls:
            message: Message = {"role": "assistant", "content": self._text}
            if self._reasoning:
                message["reasoning_content"] = self._reasoning
            if self._calls:
                message["tool_calls"] = self._calls
            self._messages.append(message)
        self._reasoning, self._text, self._calls = "", None, []


def chat_messages(instructions: str | None, items: Iterable[Item], image: ImageSource = only_inline) -> list[Message]:
    """Return the messages of a chat. ``items`` come from :func:`read_items` or from a stored response.

    ``image``: resolves the URLs of images.
    """
    chat = _Chat(instructions, image)
    for item in items:
        chat.add(item)
    return chat.messages()
