"""Messages and tools of a chat in the form that the model's chat template reads. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from workers.engine_servers.http_server import EngineHttpError
from workers.tool_calls.formats import ToolCallFormat

Message = dict[str, Any]
Tool = dict[str, Any]
_BASE: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


class TemplateInput(NamedTuple):
    """The input of the library's template engine, both parts as JSON."""

    messages: str
    tools: str | None


def template_input(
    messages: Sequence[Message], tools: Sequence[Tool], form: ToolCallFormat | None, *, shows_calls: bool
) -> TemplateInput:
    """Return the input of a template; raises :class:`EngineHttpError` for malformed messages.

    ``form``: how the model writes calls; None if it takes no tools. ``shows_calls``: the template itself writes the
    calls of past messages; otherwise they are written into the content.
    """
    shown = [_shown(message, index, form, shows_calls=shows_calls) for index, message in enumerate(messages)]
    if tools and form is not None and form.system_tools_frame:
        before, after = form.system_tools_frame
        functions = json.dumps([tool["function"] for tool in tools], ensure_ascii=False)
        if not shown or shown[0]["role"] != "system":
            shown.insert(0, {"role": "system", "content": ""})
        shown[0] = {**shown[0], "content": f"{shown[0]['content']}{before}{functions}{after}"}
        return TemplateInput(json.dumps(shown), None)
    return TemplateInput(json.dumps(shown), json.dumps(tools) if tools else None)


def _shown(message: Message, index: int, form: ToolCallFormat | None, *, shows_calls: bool) -> Message:
    flat = _flat(message, index)
    if flat.get("tool_calls") is None:
        flat.pop("tool_calls", None)  # templates ask whether it is there
        calls = []
    else:
        calls = _calls(flat["tool_calls"], f"messages[{index}].tool_calls")
    if calls and form is not None and not shows_calls:
        del flat["tool_calls"]
        flat["content"] += written_calls(calls, form)
    elif calls:
        flat["tool_calls"] = [{**call, "id": _short_id(str(call.get("id") or ""), form)} for call in calls]
    if "tool_call_id" in flat:
        flat["tool_call_id"] = _short_id(str(flat["tool_call_id"]), form)
    return flat


def _calls(calls: Any, where: str) -> list[dict[str, Any]]:
    """Return a message's calls with objects as arguments, as templates want; raises :class:`EngineHttpError`."""
    if not isinstance(calls, list):
        raise EngineHttpError(f"`{where}` must be a list")
    read = []
    for number, call in enumerate(calls):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise EngineHttpError(f"`{where}[{number}].function` must have a `name`")
        read.append({"type": "function", **call, "function": {**function, "arguments": _arguments(function)}})
    return read


def _arguments(function: dict[str, Any]) -> Any:
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        return {} if arguments is None else arguments
    try:
        found = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return arguments
    return found if isinstance(found, dict) else arguments


def written_calls(calls: Sequence[dict[str, Any]], form: ToolCallFormat) -> str:
    """Return calls as a model of this format writes them."""
    bodies = [
        json.dumps(
            {"name": call["function"]["name"], form.arguments_key: call["function"]["arguments"]}, ensure_ascii=False
        )
        for call in calls
    ]
    opener = form.openers[0]
    if form.bare:
        return "; ".join(bodies)
    if form.listed:
        return f"{opener}[{', '.join(bodies)}]{form.closer}"
    return "\n".join(f"{opener}\n{body}\n{form.closer}" for body in bodies)


def _short_id(given: str, form: ToolCallFormat | None) -> str:
    """Return an id of the length that the template insists on; the same id always yields the same one."""
    length = form.id_length if form is not None else 0
    if not length or (len(given) == length and given.isalnum()):
        return given
    number, digits = int.from_bytes(hashlib.sha256(given.encode()).digest()), []
    for _ in range(length):
        number, digit = divmod(number, len(_BASE))
        digits.append(_BASE[digit])
    return "".join(digits)


def _flat(message: Message, index: int) -> Message:
    if not isinstance(message.get("role"), str):
        raise EngineHttpError(f"`messages[{index}].role` must be a string")
    return {**message, "content": _text(message.get("content"), index)}


def _text(content: Any, index: int) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    where = f"messages[{index}].content"
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise EngineHttpError(f"`{where}` must be a string or a list of parts")
    for part in content:
        if part.get("type", "text") != "text":
            raise EngineHttpError("this model reads text only: image input is not supported")
        if not isinstance(part.get("text"), str):
            raise EngineHttpError(f"`{where}` has a part without `text`")
    return "\n".join(part["text"] for part in content)
