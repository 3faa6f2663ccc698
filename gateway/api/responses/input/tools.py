"""The tools of a request, and which of them the model may call. Pure.

Engines know only functions. A tool in a namespace becomes a function whose name has both parts, and a custom tool
becomes one whose only parameter is its text. Their calls are translated back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from gateway.api.responses.input.request import (
    HOSTED_TOOL_ADVICE,
    CustomTool,
    FunctionTool,
    NamespaceTool,
    ResponseRequest,
    ToolChoice,
)
from gateway.http.bodies import body_decoding
from protocol.failures import DECODE_ERRORS, invalid


class CustomInput(msgspec.Struct):
    """The arguments of the function that represents a custom tool."""

    input: str


_OFFERED: Final = ("function", "custom", "namespace")
"""Types of tools that a model may call. OpenAI's servers run the others."""
_INPUT: Final = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
"""The parameters of the function that represents a custom tool."""
_input_of: Final = msgspec.json.Decoder(CustomInput).decode


class ClientTool(msgspec.Struct):
    """A tool that the client runs, and the fields of its calls in the response."""

    function: FunctionTool
    """The tool for the engine, except for its name."""
    name: str
    namespace: str | None = None
    custom: bool = False

    @property
    def engine_name(self) -> str:
        """The name that the engine gets."""
        return engine_name(self.name, self.namespace)


def client_tools(request: ResponseRequest) -> dict[str, ClientTool]:
    """Return the tools by the names that the engine gets for them.

    Hosted tools are left out if there are others: coding agents send both with every request, and a model can do
    without a tool that it need not call. If there are only hosted tools, raises ``invalid_request`` naming them.
    """
    tools = {each.engine_name: each for each in _read_tools(request.tools or (), "tools")}
    hosted = sorted({str(tool.get("type")) for tool in request.tools or ()} - {"namespace"})
    if hosted and not tools:
        are = "is" if len(hosted) == 1 else "are"
        raise invalid(f"`tools`: {', '.join(hosted)} {are} not served here; {HOSTED_TOOL_ADVICE}", "tools")
    return tools


def offered_tools(request: ResponseRequest) -> list[dict[str, Any]]:
    """Return the given tools without the omitted ones, as the response lists them."""
    return [
        {"parameters": None, "strict": None, **tool} if tool["type"] == "function" else tool
        for tool in request.tools or ()
        if tool.get("type") in _OFFERED
    ]


def engine_name(name: str, namespace: str | None) -> str:
    """Return the name that the engine gets for a tool."""
    return f"{namespace}__{name}" if namespace else name


def custom_arguments(text: str) -> str:
    """Return the arguments of the function that represents a custom tool, for a call of the tool with ``text``."""
    return msgspec.json.encode(CustomInput(text)).decode()


def custom_input(arguments: str) -> str:
    """Return the text of a custom tool's call.

    Arguments that were cut off or have another form are returned unchanged.
    """
    try:
        return _input_of(arguments).input
    except DECODE_ERRORS:
        return arguments


def _read_tools(tools: Sequence[dict[str, Any]], where: str, namespace: str | None = None) -> Iterator[ClientTool]:
    for position, tool in enumerate(tools):
        here = f"{where}[{position}]"
        kind = tool.get("type")
        if kind == "function":
            function = body_decoding.convert(tool, FunctionTool, here)
            yield ClientTool(function, function.name, namespace)
        elif kind == "custom":
            custom = body_decoding.convert(tool, CustomTool, here)
            yield ClientTool(_function_for(custom), custom.name, namespace, custom=True)
        elif kind == "namespace" and namespace is None:
            group = body_decoding.convert(tool, NamespaceTool, here)
            yield from _read_tools(group.tools, f"{here}.tools", group.name)


def _function_for(tool: CustomTool) -> FunctionTool:
    """Return the function that represents a custom tool.

    The model is told its grammar, but the grammar is not enforced.
    """
    texts = [tool.description or ""]
    if tool.format is not None and tool.format.definition:
        texts.append(f"The input must follow this {tool.format.syntax or ''} grammar:\n{tool.format.definition}")
    return FunctionTool(tool.name, _INPUT, description="\n".join(filter(None, texts)) or None)


def tool_fields(request: ResponseRequest) -> dict[str, Any]:
    """Return the fields of a chat completion that offer the functions.

    Engines only know the choices ``none``, ``auto`` and ``required``. A choice that names functions offers only these.
    Raises ``invalid_request`` for a choice of something that is not offered.
    """
    tools = client_tools(request)
    choice = request.tool_choice
    mode: str = choice if isinstance(choice, str) else "auto"
    if isinstance(choice, ToolChoice):
        tools, mode = _chosen(choice, tools)
    if not tools:
        if mode == "required":
            raise invalid("`tool_choice` is required, and `tools` is empty", "tool_choice")
        return {}
    return {
        "tools": [{"type": "function", "function": _function(name, each.function)} for name, each in tools.items()],
        "tool_choice": mode,
        "parallel_tool_calls": request.parallel_tool_calls is not False,
    }


def _function(name: str, tool: FunctionTool) -> dict[str, Any]:
    fields = {**msgspec.structs.asdict(tool), "name": name}
    fields["parameters"] = tool.parameters or {"type": "object", "properties": {}}
    return {name: value for name, value in fields.items() if value is not None}


def _chosen(choice: ToolChoice, offered: dict[str, ClientTool]) -> tuple[dict[str, ClientTool], str]:
    if choice.type in ("function", "custom"):
        wanted, mode = [choice.name or ""], "required"
    elif choice.type == "allowed_tools":
        for tool in choice.tools or ():
            if tool.get("type") not in ("function", "custom"):
                raise invalid(f"`tool_choice.tools`: {tool.get('type')} is not served here", "tool_choice.tools")
        wanted, mode = [str(tool.get("name")) for tool in choice.tools or ()], choice.mode or "auto"
    else:
        raise invalid(f"`tool_choice`: {choice.type} is not served here; {HOSTED_TOOL_ADVICE}", "tool_choice")
    for name in wanted:
        if name not in offered:
            raise invalid(f"`tool_choice` names {name!r}, which is not among `tools`", "tool_choice")
    return {name: offered[name] for name in wanted}, mode
