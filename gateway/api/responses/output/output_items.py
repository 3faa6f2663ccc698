"""The output items of a response, built as a chat completion's pieces arrive, and the events about them. Pure.

Consecutive pieces of one kind make one item: thoughts a ``reasoning`` item, text a ``message``, each tool call a
``function_call`` or, for a custom tool, a ``custom_tool_call``. A piece of another kind ends the item before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from gateway.api.responses.input.input_items import NewId
from gateway.api.responses.input.tools import ClientTool, custom_input
from protocol.failures import Code, Failure
from protocol.wire.openai_chunks import ChoiceDelta, ToolCallDelta

Event = tuple[str, dict[str, Any]]
"""Type of an event, and its fields except for the type and the sequence number."""
_CALLS: Final = ("function_call", "custom_tool_call")
_logprob: Final = msgspec.json.Decoder(dict[str, Any]).decode


class Position(NamedTuple):
    """The position of an item."""

    item_id: str
    output_index: int


class _OpenItem:
    """The item that pieces are still added to."""

    def __init__(self, kind: str, index: int, item: dict[str, Any], call: int = -1) -> None:
        self.kind = kind
        self.index = index
        """Position in the output."""
        self.place = Position(item["id"], index)
        self.item = item
        """Its form in the events at its beginning."""
        self.call = call
        """The tool call's index in the chat completion."""
        self.pieces: list[str] = []
        self.logprobs: list[dict[str, Any]] = []

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def position(self) -> dict[str, Any]:
        position = {"item_id": self.item["id"], "output_index": self.index}
        return position if self.kind in _CALLS else {**position, "content_index": 0}

    def part(self, *, empty: bool = False) -> dict[str, Any]:
        text = "" if empty else self.text
        if self.kind == "reasoning":
            return {"type": "reasoning_text", "text": text}
        logprobs = [] if empty else self.logprobs
        return {"type": "output_text", "annotations": [], "logprobs": logprobs, "text": text}

    def whole(self, status: str) -> dict[str, Any]:
        if self.kind == "function_call":
            return {**self.item, "status": status, "arguments": self.text}
        if self.kind == "custom_tool_call":
            return {**self.item, "status": status, "input": custom_input(self.text)}
        return {**self.item, "status": status, "content": [self.part()]}


class OutputItems:
    """The output of one response."""

    def __init__(self, new_id: NewId, tools: Mapping[str, ClientTool]) -> None:
        """Begin without items. ``tools``: by the names that the engine has for them."""
        self._new_id = new_id
        self._tools = tools
        self._open: _OpenItem | None = None
        self._done: list[dict[str, Any]] = []
        self._calls = -1
        """Index of the last tool call."""
        self.reasoning_length = 0
        """Characters of thoughts."""
        self.length = 0
        """Characters of everything, thoughts included."""

    def add(self, choice: ChoiceDelta) -> list[Event]:
        """Take a piece and return its events; raises ``backend_error`` for pieces in an impossible order."""
        events: list[Event] = []
        delta = choice.delta
        if delta is None:
            return events
        if delta.reasoning_content:
            events += self._text("reasoning", delta.reasoning_content)
        if delta.content:
            logprobs = choice.logprobs.content if choice.logprobs else None
            events += self._text("message", delta.content, [_logprob(each) for each in logprobs or ()])
        for call in delta.tool_calls:
            events += self._call(call)
        return events

    def add_text(self, text: str) -> Position | None:
        """Take a piece of text if a message is open, and return its position; else take nothing and return None."""
        opened = self._open
        if opened is None or opened.kind != "message":
            return None
        opened.pieces.append(text)
        self.length += len(text)
        return opened.place

    def end(self, status: str) -> list[Event]:
        """End the last item with ``status``. An output without any item gets an empty message."""
        events = [] if self._open or self._done else self._begin("message")
        return events + self._end(status)

    def items(self, status: str) -> list[dict[str, Any]]:
        """Return the items so far. ``status``: of an item that has not ended."""
        return [*self._done, *([self._open.whole(status)] if self._open else [])]

    def _text(self, kind: str, text: str, logprobs: list[dict[str, Any]] | None = None) -> list[Event]:
        events = self._begin(kind) if self._open is None or self._open.kind != kind else []
        assert self._open is not None  # noqa: S101 - it was begun
        self._open.pieces.append(text)
        self.length += len(text)
        if kind == "reasoning":
            self.reasoning_length += len(text)
            return [*events, ("response.reasoning_text.delta", {**self._open.position, "delta": text})]
        self._open.logprobs += logprobs or []
        fields = {**self._open.position, "delta": text, "logprobs": logprobs or []}
        return [*events, ("response.output_text.delta", fields)]

    def _call(self, call: ToolCallDelta) -> list[Event]:
        events: list[Event] = []
        if call.index > self._calls:
            self._calls = call.index
            tool = self._tools.get(call.function.name)
            events = self._begin(_CALLS[tool is not None and tool.custom], call)
        elif self._open is None or self._open.call != call.index:
            raise Failure(Code.BACKEND_ERROR, "the engine mixed the pieces of several tool calls").raised()
        open_call = self._open
        assert open_call is not None  # noqa: S101 - it was begun
        text = call.function.arguments
        if text:
            open_call.pieces.append(text)
            self.length += len(text)
        if text and open_call.kind == "function_call":
            events.append(("response.function_call_arguments.delta", {**open_call.position, "delta": text}))
        return events

    def _begin(self, kind: str, call: ToolCallDelta | None = None) -> list[Event]:
        events = self._end("completed")
        item: dict[str, Any]
        if call is not None:
            item = self._call_item(kind, call)
        elif kind == "reasoning":
            item = {"type": kind, "id": self._new_id("rs"), "status": "in_progress", "summary": [], "content": []}
        else:
            item = {
                "type": kind,
                "id": self._new_id("msg"),
                "status": "in_progress",
                "role": "assistant",
                "content": [],
            }
        opened = self._open = _OpenItem(kind, len(self._done), item, call.index if call else -1)
        events.append(("response.output_item.added", {"output_index": opened.index, "item": item}))
        if call is None:
            events.append(("response.content_part.added", {**opened.position, "part": opened.part(empty=True)}))
        return events

    def _call_item(self, kind: str, call: ToolCallDelta) -> dict[str, Any]:
        """Return the item of a new call, with the client's name for the tool."""
        tool = self._tools.get(call.function.name)
        named: dict[str, Any] = {"name": tool.name if tool else call.function.name}
        if tool is not None and tool.namespace:
            named["namespace"] = tool.namespace
        custom = kind == "custom_tool_call"
        return {
            "type": kind,
            "id": self._new_id("ctc" if custom else "fc"),
            "call_id": call.id or self._new_id("call"),
            **named,
            "status": "in_progress",
            "input" if custom else "arguments": "",
        }

    def _end(self, status: str) -> list[Event]:
        ended, self._open = self._open, None
        if ended is None:
            return []
        whole = ended.whole(status)
        self._done.append(whole)
        events: list[Event] = []
        if ended.kind == "function_call":
            # Some versions of the openai package require the name here, as OpenAI's reference does.
            fields = {**ended.position, "name": whole["name"], "arguments": ended.text}
            events.append(("response.function_call_arguments.done", fields))
        elif ended.kind == "custom_tool_call":
            # The engine writes JSON, whose text is known only when it is complete.
            events.append(("response.custom_tool_call_input.delta", {**ended.position, "delta": whole["input"]}))
            events.append(("response.custom_tool_call_input.done", {**ended.position, "input": whole["input"]}))
        elif ended.kind == "reasoning":
            events.append(("response.reasoning_text.done", {**ended.position, "text": ended.text}))
        else:
            fields = {**ended.position, "text": ended.text, "logprobs": ended.logprobs}
            events.append(("response.output_text.done", fields))
        if ended.kind not in _CALLS:
            events.append(("response.content_part.done", {**ended.position, "part": ended.part()}))
        return [*events, ("response.output_item.done", {"output_index": ended.index, "item": whole})]
