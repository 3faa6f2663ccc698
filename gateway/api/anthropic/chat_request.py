"""A request of Anthropic's Messages API as the body of an OpenAI chat completion. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from gateway.api.anthropic.message_request import (
    Block,
    ContentSource,
    DocumentBlock,
    FileSource,
    ImageBlock,
    Message,
    MessageRequest,
    PlainTextSource,
    PromptRequest,
    RedactedThinkingBlock,
    SearchResultBlock,
    SourceBlock,
    TextBlock,
    ThinkingBlock,
    Tool,
    ToolResultBlock,
    ToolUseBlock,
    UrlSource,
)
from gateway.api.common.inference.sampling_fields import given_sampling
from gateway.api.common.inference.thinking import no_thinking
from protocol.failures import invalid

Json = dict[str, Any]
IMAGE_TYPES: Final = ("image/jpeg", "image/png", "image/gif", "image/webp")
_TOOL_CHOICES: Final = {"auto": "auto", "any": "required", "tool": "required", "none": "none"}


def chat_body(request: MessageRequest) -> Json:
    """Return the body that generates the message; raises ``invalid_request`` for what cannot be translated."""
    body = prompt_body(request)
    body["max_tokens"] = request.max_tokens
    body |= given_sampling(request)
    if request.stop_sequences:
        # OpenAI's form has no field for the stop sequence that was hit.
        body |= {"stop": request.stop_sequences, "return_stop_reason": True}
    if request.stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


NAMES: Final = {"response_format": "output_config"}
"""Field of a chat → the request's field that it comes from, where they differ."""


def prompt_body(request: PromptRequest) -> Json:
    """Return the parts that the prompt is made from: the conversation, the tools and the template's variables.

    Raises ``invalid_request`` for what cannot be translated.
    """
    body: Json = {"model": request.model} if request.model else {}
    body["messages"] = list(_messages(request))
    body |= _tools(request)
    if request.chat_template_kwargs:
        body["chat_template_kwargs"] = request.chat_template_kwargs
    match request.thinking.type if request.thinking else None:
        case "enabled" if request.thinking is not None:
            body["thinking_budget_tokens"] = request.thinking.budget_tokens
            body["chat_template_kwargs"] = {"enable_thinking": True} | (request.chat_template_kwargs or {})
        case "disabled":
            body |= no_thinking(request.chat_template_kwargs)
    if request.output_config is not None and request.output_config.format is not None:
        schema = {"name": "output", "schema": request.output_config.format.schema, "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return body


def _tools(request: PromptRequest) -> Json:
    """Return the fields about tools.

    If the client chooses one tool, the others are left out: llama-server cannot be told a name.
    """
    if not request.tools:
        return {}
    choice = request.tool_choice
    chosen = choice.name if choice is not None and choice.type == "tool" else None
    fields: Json = {"tools": [_function(tool) for tool in request.client_tools if chosen in (None, tool.name)]}
    if choice is not None:
        fields["tool_choice"] = _TOOL_CHOICES[choice.type]
        if request.one_call:
            fields["parallel_tool_calls"] = False
    return fields


def _function(tool: Tool) -> Json:
    function: Json = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    function["parameters"] = tool.input_schema
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _messages(request: PromptRequest) -> Iterator[Json]:
    if request.system:
        system = request.system if isinstance(request.system, str) else _joined(block.text for block in request.system)
        yield {"role": "system", "content": system}
    calls: dict[str, str] = {}
    for where, role, content in _turns(request.messages):
        if role == "assistant":
            yield _assistant_message(content, where, calls)
        elif role == "user":
            yield from _user_messages(content, where, calls)
        else:
            yield {"role": role, "content": _content(_parts(_only_sources(content, where, role), where))}


def _turns(messages: Sequence[Message]) -> Iterator[tuple[str, str, list[Block]]]:
    """Yield the position, role and blocks of each turn. Consecutive messages of one role are one turn."""
    where, role, content = "", "", list[Block]()
    for position, message in enumerate(messages):
        if message.role != role:
            if role:
                yield where, role, content
            where, role, content = f"messages[{position}]", message.role, []
        content += message.blocks
    yield where, role, content


def _assistant_message(content: list[Block], where: str, calls: dict[str, str]) -> Json:
    """Return the message, and add the ids of its calls with the names of their tools to ``calls``."""
    texts: list[str] = []
    thoughts: list[str] = []
    made: list[Json] = []
    for block in content:
        match block:
            case TextBlock():
                texts.append(block.text)
            case ThinkingBlock():
                thoughts.append(block.thinking)
            case ToolUseBlock():
                calls[block.id] = block.name
                arguments = msgspec.json.encode(block.input).decode()
                function = {"name": block.name, "arguments": arguments}
                made.append({"id": block.id, "type": "function", "function": function})
            case RedactedThinkingBlock():
                pass
            case _:
                raise _misplaced(block, where, "assistant")
    # An answer's text is cut into blocks wherever something else comes between, but its pieces belong together.
    message: Json = {"role": "assistant", "content": "".join(texts)}
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    if made:
        message |= {"content": message["content"] or None, "tool_calls": made}
    return message


def _user_messages(content: list[Block], where: str, calls: dict[str, str]) -> Iterator[Json]:
    """Yield the results of tools, then one message with everything else. OpenAI's tool results are texts."""
    parts: list[Json] = []
    for block in content:
        if not isinstance(block, ToolResultBlock):
            continue
        if block.tool_use_id not in calls:
            raise invalid(f"`{where}`: a tool_result has no tool_use with its `tool_use_id` before it", where)
        result = block.content or ""
        found = [{"type": "text", "text": result}] if isinstance(result, str) else _parts(result, where)
        text = _joined(part["text"] for part in found if part["type"] == "text")
        yield {"role": "tool", "tool_call_id": block.tool_use_id, "name": calls[block.tool_use_id], "content": text}
        parts += [part for part in found if part["type"] != "text"]
    others = [block for block in content if not isinstance(block, ToolResultBlock)]
    parts += _parts(_only_sources(others, where, "user"), where)
    if parts or not content:
        yield {"role": "user", "content": _content(parts)}


def _only_sources(content: Sequence[Block], where: str, role: str) -> list[SourceBlock]:
    found: list[SourceBlock] = []
    for block in content:
        if not isinstance(block, SourceBlock):
            raise _misplaced(block, where, role)
        found.append(block)
    return found


def _misplaced(block: Block, where: str, role: str) -> Exception:
    kind = type(block).__struct_config__.tag
    return invalid(f"`{where}`: a message of role {role} cannot have a block of type {kind}", where)


def _content(parts: list[Json]) -> str | list[Json]:
    """Return parts that are all texts as one text, which every template accepts."""
    if all(part["type"] == "text" for part in parts):
        return _joined(part["text"] for part in parts)
    return parts


def _parts(content: Sequence[SourceBlock], where: str) -> list[Json]:
    parts: list[Json] = []
    for block in content:
        match block:
            case TextBlock():
                parts.append({"type": "text", "text": block.text})
            case ImageBlock():
                parts.append({"type": "image_url", "image_url": {"url": _image_url(block, where)}})
            case SearchResultBlock():
                text = _joined([block.title, block.source, *(each.text for each in block.content)])
                parts.append({"type": "text", "text": text})
            case DocumentBlock():
                heads = [head for head in (block.title, block.context) if head]
                parts += [{"type": "text", "text": head} for head in heads] + _document_parts(block, where)
    return parts


def _document_parts(block: DocumentBlock, where: str) -> list[Json]:
    source = block.source
    if isinstance(source, PlainTextSource):
        return [{"type": "text", "text": source.data}]
    if isinstance(source, ContentSource):
        content = source.content
        return _parts([TextBlock(content)] if isinstance(content, str) else content, where)
    raise invalid(
        f"`{where}`: a document must have a `source` of type text or content; others are not read here", where
    )


def _image_url(block: ImageBlock, where: str) -> str:
    source = block.source
    if isinstance(source, UrlSource):
        raise invalid(f"`{where}`: images are not fetched from a URL; send them as a `source` of type base64", where)
    if isinstance(source, FileSource):
        raise invalid(f"`{where}`: this server stores no files; send images as a `source` of type base64", where)
    if source.media_type not in IMAGE_TYPES:
        raise invalid(f"`{where}`: the `media_type` of an image must be one of {', '.join(IMAGE_TYPES)}", where)
    return f"data:{source.media_type};base64,{source.data}"


def _joined(texts: Sequence[str] | Iterator[str]) -> str:
    return "\n".join(texts)
