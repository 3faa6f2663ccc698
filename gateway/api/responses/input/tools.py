"""The tools of a request, and which of them the model may call. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.api.responses.input.request import HOSTED_TOOL_ADVICE, FunctionTool, ResponseRequest, ToolChoice
from gateway.http.bodies import body_decoding
from protocol.failures import invalid


def read_tools(request: ResponseRequest) -> list[FunctionTool]:
    """Return the functions; raises ``invalid_request`` naming every hosted tool among the tools."""
    hosted = sorted({str(tool.get("type")) for tool in request.tools or () if tool.get("type") != "function"})
    if hosted:
        are = "is" if len(hosted) == 1 else "are"
        raise invalid(f"`tools`: {', '.join(hosted)} {are} not served here; {HOSTED_TOOL_ADVICE}", "tools")
    return [
        body_decoding.convert(tool, FunctionTool, f"tools[{position}]")
        for position, tool in enumerate(request.tools or ())
    ]


def tool_fields(request: ResponseRequest) -> dict[str, Any]:
    """Return the fields of a chat completion that offer the functions.

    Engines know no choice but ``none``, ``auto`` and ``required``: a choice that names functions offers these alone.
    Raises ``invalid_request`` for a choice of something that is not offered.
    """
    functions = read_tools(request)
    choice = request.tool_choice
    mode: str = choice if isinstance(choice, str) else "auto"
    if isinstance(choice, ToolChoice):
        functions, mode = _chosen(choice, functions)
    if not functions:
        if mode == "required":
            raise invalid("`tool_choice` is required, and `tools` is empty", "tool_choice")
        return {}
    return {
        "tools": [{"type": "function", "function": _function(each)} for each in functions],
        "tool_choice": mode,
        "parallel_tool_calls": request.parallel_tool_calls is not False,
    }


def _function(tool: FunctionTool) -> dict[str, Any]:
    fields = msgspec.structs.asdict(tool)
    fields["parameters"] = tool.parameters or {"type": "object", "properties": {}}
    return {name: value for name, value in fields.items() if value is not None}


def _chosen(choice: ToolChoice, functions: list[FunctionTool]) -> tuple[list[FunctionTool], str]:
    if choice.type == "function":
        wanted, mode = [choice.name or ""], "required"
    elif choice.type == "allowed_tools":
        for tool in choice.tools or ():
            if tool.get("type") != "function":
                raise invalid(f"`tool_choice.tools`: {tool.get('type')} is not served here", "tool_choice.tools")
        wanted, mode = [str(tool.get("name")) for tool in choice.tools or ()], choice.mode or "auto"
    else:
        raise invalid(f"`tool_choice`: {choice.type} is not served here; {HOSTED_TOOL_ADVICE}", "tool_choice")
    offered = {each.name: each for each in functions}
    for name in wanted:
        if name not in offered:
            raise invalid(f"`tool_choice` names {name!r}, which is not among `tools`", "tool_choice")
    return [offered[name] for name in dict.fromkeys(wanted)], mode
