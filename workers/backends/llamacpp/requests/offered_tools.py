"""The parts of a chat's tools that llama-server ignores. Pure.

It knows ``tool_choice`` only as a word, so a choice of certain functions becomes an offer of only these. If the model's
chat template has no place for tools, llama-server silently ignores both fields. A required call is then made here: the
system message names the functions, a schema of their calls forces the answer's form, and the answer becomes a call. If
the model may choose, the client is warned.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from protocol.failures import DECODE_ERRORS, Code, Failure, invalid
from workers.backends.engine_request import EngineRequest
from workers.stream.sse_parser import EventTranslator
from workers.tool_calls.call_parser import CallArguments, CallEvent, CallStart, ToolCallParser
from workers.tool_calls.formats import ToolCallFormat

WARNING: Final = "the chat template of this model has no place for tools: the model was not told of them"
_is_asked: Final = re.compile(rb'"tool(?:s|_choice)"').search
_CHUNK: Final = b'"delta":{'
_WORDS: Final = ("auto", "none", "required")
_FORM_FIELDS: Final = ("tools", "tool_choice", "parallel_tool_calls", "response_format", "json_schema")
"""Fields of a request that the schema of its calls replaces."""
_ONE_CALL: Final = ToolCallFormat("json", ("<tool_call>",), bare=True)
"""The whole answer is a call."""
_INSTRUCTION: Final = (
    "You must call one of these functions. Answer with a JSON object that has the `name` of the function, and its `arguments` "
    "as the `parameters` say:"
)
_ANY_OBJECT: Final = {"type": "object"}


class _Function(msgspec.Struct, omit_defaults=True):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class _Tool(msgspec.Struct):
    function: _Function
    type: str = "function"


class _Name(msgspec.Struct):
    name: str


class _NamedTool(msgspec.Struct):
    function: _Name
    type: str = "function"


class _AllowedTools(msgspec.Struct):
    tools: list[_NamedTool]
    mode: str = "auto"


class _Choice(msgspec.Struct):
    """A ``tool_choice`` that is not a word: one function, or the allowed ones."""

    function: _Name | None = None
    allowed_tools: _AllowedTools | None = None
    type: str = "function"


class _Asked(msgspec.Struct):
    tools: list[msgspec.Raw] | None = None
    tool_choice: str | _Choice | None = None


_asked: Final = msgspec.json.Decoder(_Asked).decode
_tool: Final = msgspec.json.Decoder(_Tool).decode
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_messages: Final = msgspec.json.Decoder(list[dict[str, Any]]).decode
_object: Final = msgspec.json.Decoder(dict[str, Any]).decode
_encode: Final = msgspec.json.encode


class OfferedTools(NamedTuple):
    """Turns a request that llama-server would not follow into one that it does."""

    body: bytes
    forced: tuple[str, ...] = ()
    """Names of the functions, one of which the answer must call, and their JSON as text."""
    warning: str = ""
    """What to tell the client."""

    def applied_to(self, request: EngineRequest) -> EngineRequest:
        """Return the engine's request with an answer that has calls."""
        request = request._replace(warning=self.warning)
        if not self.forced:
            return request
        calls = _ForcedCalls(self.forced)
        then = EventTranslator(_CHUNK, calls.chunk).feed if request.streamed else calls.whole
        return request.translated(then)


def offered_tools(body: bytes, *, has_place: bool) -> OfferedTools | None:
    """Return what to do about a chat's tools; None for nothing. ``has_place``: the model's chat template takes tools.

    Raises ``invalid_request`` for a choice that cannot be served.
    """
    if not _is_asked(body):
        return None
    try:
        asked, fields = _asked(body), _fields(body)
        mode, names = _chosen(asked.tool_choice)
        if mode == "required" and not asked.tools:
            raise invalid("`tool_choice` asks for a call, and there are no `tools`", "tool_choice")
        if has_place and not names:
            return None
        tools = _offered(asked.tools or (), names)
    except msgspec.ValidationError as problem:
        raise invalid(f"`tools` or `tool_choice`: {problem}", "tools") from None
    except DECODE_ERRORS as problem:
        raise Failure(Code.INVALID_JSON, f"the request is not a JSON object: {problem}").raised() from None
    if has_place or mode == "none" or not tools:
        return _only(fields, tools, mode) if names else None
    if mode == "auto":
        return OfferedTools(body, warning=WARNING)
    if "grammar" in fields:
        raise invalid("with this model, `grammar` excludes a `tool_choice` that asks for a call", "grammar")
    return _forced(fields, [_tool(raw).function for raw in tools.values()])


def _chosen(choice: str | _Choice | None) -> tuple[str, list[str]]:
    """Return the word that a choice amounts to, and the functions that it names; none: all."""
    match choice:
        case None:
            return "auto", []
        case str() if choice in _WORDS:
            return choice, []
        case _Choice(function=_Name(name=name)):
            return "required", [name]
        case _Choice(allowed_tools=_AllowedTools(tools=tools, mode="auto" | "required" as mode)):
            return mode, [tool.function.name for tool in tools]
    raise invalid("`tool_choice` must be auto, none, required, or name functions", "tool_choice")


def _offered(tools: Sequence[msgspec.Raw], names: Sequence[str]) -> dict[str, msgspec.Raw]:
    """Return the tools with these names, or all if there are none, by name."""
    known = {_tool(raw).function.name: raw for raw in tools}
    if missing := next((name for name in names if name not in known), ""):
        raise invalid(f"`tool_choice` names {missing!r}, which is not among `tools`", "tool_choice")
    return {name: known[name] for name in names or known}


def _only(fields: dict[str, msgspec.Raw], tools: dict[str, msgspec.Raw], mode: str) -> OfferedTools:
    return OfferedTools(_encode({**fields, "tools": [*tools.values()], "tool_choice": mode}))


def _forced(fields: dict[str, msgspec.Raw], functions: Sequence[_Function]) -> OfferedTools:
    kept: dict[str, Any] = {name: raw for name, raw in fields.items() if name not in _FORM_FIELDS}
    kept["messages"] = _instructed(_messages(fields.get("messages", b"[]")), functions)
    kept["json_schema"] = call_schema({each.name: each.parameters or _ANY_OBJECT for each in functions})
    return OfferedTools(_encode(kept), forced=tuple(each.name for each in functions))


def _instructed(messages: Sequence[dict[str, Any]], functions: Sequence[_Function]) -> list[dict[str, Any]]:
    text = "\n".join([_INSTRUCTION, *(_encode(each).decode() for each in functions)])
    first = messages[0] if messages else {}
    if first.get("role") not in ("system", "developer"):
        return [{"role": "system", "content": text}, *messages]
    content = first.get("content") or ""
    joined = f"{content}\n\n{text}" if isinstance(content, str) else [*content, {"type": "text", "text": text}]
    return [{**first, "content": joined}, *messages[1:]]


def call_schema(parameters: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the JSON schema of a call of one of the functions, name → schema of its arguments.

    A reference in one of these begins at its own root, which is now below ``$defs``.
    """
    places = {name: f"#/$defs/{number}" for number, name in enumerate(parameters)}
    calls = [
        {
            "type": "object",
            "properties": {"name": {"const": name}, "arguments": {"$ref": place}},
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for name, place in places.items()
    ]
    moved = {str(number): _moved(schema, f"#/$defs/{number}") for number, schema in enumerate(parameters.values())}
    return {"anyOf": calls, "$defs": moved} if len(calls) > 1 else {**calls[0], "$defs": moved}


def _moved(schema: Any, place: str) -> Any:
    if isinstance(schema, list):
        return [_moved(each, place) for each in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {name: _moved(value, place) for name, value in schema.items()}
    if isinstance(ref := schema.get("$ref"), str) and ref.startswith("#"):
        moved["$ref"] = place + ref[1:]
    return moved


class _ForcedCalls:
    """Turns the texts of one answer into calls, each choice separately."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._parsers: dict[int, ToolCallParser] = {}

    def chunk(self, payload: bytes) -> bytes:
        """Return a chunk of a stream as the calls that its text belongs to; raises ValueError for anything else."""
        return self._rewritten(payload, "delta")

    def whole(self, body: bytes) -> bytes:
        """Return a whole answer with its calls; raises ValueError for anything else."""
        return self._rewritten(body, "message")

    def _rewritten(self, payload: bytes, field: str) -> bytes:
        try:
            answer = _object(payload)
            for choice in answer["choices"]:
                self._rewrite(choice, choice[field], part_of_stream=field == "delta")
        except (LookupError, TypeError, AttributeError) as problem:
            raise ValueError(str(problem)) from problem
        return _encode(answer)

    def _rewrite(self, choice: dict[str, Any], message: dict[str, Any], *, part_of_stream: bool) -> None:
        index = choice["index"]
        if index not in self._parsers:
            self._parsers[index] = ToolCallParser(_ONE_CALL, self._names, lambda: f"call_{secrets.token_hex(12)}", 1)
        parser, reason = self._parsers[index], choice["finish_reason"]
        events = parser.feed(message.pop("content", None) or "")
        if reason:
            events += parser.finish()
        if "role" in message:
            message["content"] = None
        if call := _call(events):
            message["tool_calls"] = [{"index": 0, **call} if part_of_stream else call]
        if reason == "stop" and parser.calls:
            choice["finish_reason"] = "tool_calls"
        choice.pop("logprobs", None)  # they are about the text


def _call(events: Sequence[CallEvent]) -> dict[str, Any]:
    """Return the call, or the part of it, in these events; empty if they contain none.

    It is one object, although a call and its first arguments are two events: some clients only read a chunk's first
    call.
    """
    call: dict[str, Any] = {}
    for event in events:
        if isinstance(event, CallStart):
            call = {"id": event.id, "type": "function", "function": {"name": event.name, "arguments": ""}}
        elif isinstance(event, CallArguments):
            function = call.setdefault("function", {"arguments": ""})
            function["arguments"] += event.text
    return call
