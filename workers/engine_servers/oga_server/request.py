"""Parses an OpenAI request for ONNX Runtime GenAI strictly; refuses what the library cannot do. Pure.

A message that begins with ``Field 'NAME': `` names the request's wrong field.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from protocol.failures import DECODE_ERRORS
from workers.engine_servers.http_server import EngineHttpError
from workers.engine_servers.oga_server.grammar import ANY_OBJECT

NO_LIMIT: Final = 2**31
MAX_STOP_WORDS: Final = 64
MAX_TOP_LOGPROBS: Final = 128
MAX_PENALTY: Final = 100
"""OpenAI's clients send -2 to 2; llama-server takes any."""
MAX_COMPLETIONS: Final = 128
"""Choices of all prompts together; they are computed one after the other."""


class StreamOptions(msgspec.Struct):
    """Optional parts of a stream."""

    include_usage: bool = False


class JsonSchemaFormat(msgspec.Struct):
    """The schema of an answer in OpenAI's form."""

    schema: dict[str, Any] | None = None


class ResponseFormat(msgspec.Struct):
    """The required form of an answer. ``schema`` is where llama-server has it."""

    type: str = "text"
    json_schema: JsonSchemaFormat | None = None
    schema: dict[str, Any] | None = None


class ToolFunction(msgspec.Struct, omit_defaults=True):
    """A function that the model may call."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class OfferedTool(msgspec.Struct):
    """A tool, which is a function."""

    function: ToolFunction
    type: Literal["function"] = "function"


class NamedFunction(msgspec.Struct):
    """A function's name."""

    name: str


class NamedTool(msgspec.Struct):
    """The tool that must be called."""

    function: NamedFunction
    type: Literal["function"] = "function"


class OgaRequest(msgspec.Struct):
    """A chat or a completion. None: the request lacks the field."""

    messages: list[dict[str, Any]] | None = None
    prompt: str | list[Any] | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    return_progress: bool | None = False
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    n_predict: int | None = None
    min_length: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    repeat_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    cache_prompt: bool | None = None
    do_sample: bool | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    n: int | None = None
    logprobs: bool | int | None = None
    top_logprobs: int | None = None
    n_probs: int | None = None
    tools: list[OfferedTool] | None = None
    tool_choice: str | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    logit_bias: dict[str, Any] | list[Any] | None = None
    grammar: str | None = None
    json_schema: dict[str, Any] | None = None
    verbose: bool | None = None
    echo: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    @property
    def max_answer_tokens(self) -> int:
        """How many tokens the answer may have. As in llama-server, a negative limit means none."""
        limits = (self.max_completion_tokens, self.max_tokens, self.n_predict)
        limit = next((each for each in limits if each is not None), -1)
        return min(limit, NO_LIMIT) if limit >= 0 else NO_LIMIT

    @property
    def stop_words(self) -> list[str]:
        """The words that end the answer but are not part of it."""
        return [word for word in ([self.stop] if isinstance(self.stop, str) else self.stop or []) if word]

    @property
    def logprob_count(self) -> int | None:
        """How many most likely tokens to return with each token; None: no probabilities are requested."""
        count = max(
            self.top_logprobs or 0, self.n_probs or 0, int(self.logprobs or 0) if self.logprobs_is_number else 0
        )
        asked = count or (self.logprobs is not None and self.logprobs is not False)
        return min(count, MAX_TOP_LOGPROBS) if asked else None

    @property
    def scores_prompts(self) -> bool:
        """Whether the log probabilities of the prompts' own tokens are requested."""
        return self.messages is None and bool(self.echo) and self.logprob_count is not None

    @property
    def logprobs_is_number(self) -> bool:
        """Whether ``logprobs`` is a number, as in completions."""
        return not isinstance(self.logprobs, bool)

    @property
    def choices(self) -> int:
        """Choices of each prompt."""
        return self.n or 1

    @property
    def offered_tools(self) -> list[OfferedTool]:
        """The tools that the model may call."""
        return [] if self.tool_choice == "none" else self.tools or []

    @property
    def callable_tools(self) -> dict[str, Mapping[str, Any]]:
        """The tools that the answer may call: name → schema of the arguments."""
        named = self.tool_choice.function.name if isinstance(self.tool_choice, NamedTool) else None
        return {
            tool.function.name: tool.function.parameters or ANY_OBJECT
            for tool in self.offered_tools
            if named in (None, tool.function.name)
        }

    @property
    def must_call(self) -> bool:
        """Whether the answer must be a call."""
        return self.tool_choice == "required" or isinstance(self.tool_choice, NamedTool)

    @property
    def may_call_several(self) -> bool:
        """Whether the answer may have more than one call."""
        return self.parallel_tool_calls is not False and not isinstance(self.tool_choice, NamedTool)

    @property
    def answer_schema(self) -> dict[str, Any] | None:
        """The JSON schema of the answer, None if it may be any text."""
        wanted = self.response_format or ResponseFormat()
        if wanted.type == "json_schema":
            given = wanted.json_schema.schema if wanted.json_schema else wanted.schema
            return ANY_OBJECT if given is None else given
        if wanted.type == "json_object":
            return ANY_OBJECT if wanted.schema is None else wanted.schema
        return self.json_schema

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with its usage."""
        return self.stream_options is not None and self.stream_options.include_usage


_decode: Final = msgspec.json.Decoder(OgaRequest).decode


def parse_request(body: bytes, chat: bool) -> OgaRequest:
    """Return the request; raises :class:`EngineHttpError` for one that is invalid, or that this engine cannot serve."""
    try:
        request = _decode(body)
    except msgspec.ValidationError as problem:
        raise EngineHttpError(str(problem)) from None
    except DECODE_ERRORS as problem:
        raise EngineHttpError(f"Failed to parse the request as JSON: {problem}") from None
    if chat and not request.messages:
        raise EngineHttpError("`messages` must be a list of at least one message")
    if not chat:
        if request.prompt is None:
            raise EngineHttpError("`prompt` is missing")
        request.messages = request.tools = request.tool_choice = None  # fields of chats
    _check_numbers(request)
    _check_tools(request)
    _check_possible(request)
    return request


def field_error(field: str, reason: str) -> EngineHttpError:
    """Return the refusal of a request because of one of its fields."""
    return EngineHttpError(f"Field '{field}': {reason}")


def _check_numbers(request: OgaRequest) -> None:
    if request.n is not None and request.n < 1:
        raise field_error("n", "must be at least 1")
    if request.top_p is not None and not 0 <= request.top_p <= 1:
        raise EngineHttpError("`top_p` must be a number from 0 to 1")
    for name in ("temperature", "repeat_penalty"):
        value = getattr(request, name)
        if value is not None and not (math.isfinite(value) and value >= 0):
            raise EngineHttpError(f"`{name}` must be a number from 0")
    for name in ("presence_penalty", "frequency_penalty"):
        value = getattr(request, name)
        if value is not None and not -MAX_PENALTY <= value <= MAX_PENALTY:
            raise EngineHttpError(f"`{name}` must be a number from -{MAX_PENALTY} to {MAX_PENALTY}")
    if request.repeat_penalty == 0:
        raise EngineHttpError("`repeat_penalty` must be more than 0")
    if len(request.stop_words) > MAX_STOP_WORDS:
        raise EngineHttpError(f"`stop` must have at most {MAX_STOP_WORDS} words")


def _check_tools(request: OgaRequest) -> None:
    if isinstance(request.tool_choice, str) and request.tool_choice not in ("auto", "none", "required"):
        raise field_error("tool_choice", "must be auto, none, required, or name a function")
    names = [tool.function.name for tool in request.tools or []]
    if len(set(names)) < len(names):
        raise field_error("tools", "two tools have one name")
    if request.must_call and not request.callable_tools:
        raise field_error("tool_choice", "must name one of `tools`" if names else "needs `tools`")


def _check_possible(request: OgaRequest) -> None:
    if (request.response_format or ResponseFormat()).type not in ("text", "json_object", "json_schema"):
        raise field_error("response_format", "its type must be text, json_object or json_schema")
    if request.choices * len(split_prompts(request.prompt)) > MAX_COMPLETIONS:
        raise field_error("n", f"one request may ask for at most {MAX_COMPLETIONS} completions of all its prompts")
    for what, wanted in {
        "GBNF grammars": bool(request.grammar),
        "biased tokens": bool(request.logit_bias),
    }.items():
        if wanted:
            raise EngineHttpError(f"ONNX Runtime GenAI does not serve {what} here", 501, "not_supported_error")


def split_prompts(prompt: str | list[Any] | None) -> list[Any]:
    """Return the prompts of a completion. A text is one; so is a list of token numbers."""
    if isinstance(prompt, list) and any(isinstance(each, str | list) for each in prompt):
        return prompt
    return [prompt]


def prompt_token_ids(prompt: list[Any], vocabulary: int) -> list[int]:
    """Return the token numbers of a prompt that is a list of them; raises :class:`EngineHttpError`."""
    if not all(isinstance(token, int) and not isinstance(token, bool) for token in prompt):
        raise field_error("prompt", "must be a text, a list of token numbers, or a list of such prompts")
    wrong = next((token for token in prompt if not 0 <= token < vocabulary), None)
    if wrong is not None:
        raise EngineHttpError(f"`prompt` has token {wrong}; the model's are 0 to {vocabulary - 1}")
    return prompt
