"""Parses an OpenAI request for ONNX Runtime GenAI strictly; refuses what the library cannot do. Pure."""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from protocol.wire.decoding import DECODE_ERRORS
from workers.engines.http_errors import EngineHttpError

NO_LIMIT: Final = 2**31
MAX_STOP_WORDS: Final = 64
MAX_TOP_LOGPROBS: Final = 128
MAX_PENALTY: Final = 100
"""OpenAI's clients send -2 to 2; llama-server takes any."""


class StreamOptions(msgspec.Struct):
    """Optional parts of a stream."""

    include_usage: bool = False


class ResponseFormat(msgspec.Struct):
    """The form that an answer must have."""

    type: str = "text"


class OgaRequest(msgspec.Struct):
    """A chat or a completion. None: the request has no such field."""

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
    tools: list[msgspec.Raw] | None = None
    tool_choice: str | dict[str, Any] | None = None
    response_format: ResponseFormat | None = None
    logit_bias: dict[str, Any] | list[Any] | None = None
    grammar: str | None = None
    json_schema: dict[str, Any] | None = None
    verbose: bool | None = None

    @property
    def max_answer_tokens(self) -> int:
        """How many tokens the answer may have; a negative limit is none, as llama-server has it."""
        limits = (self.max_completion_tokens, self.max_tokens, self.n_predict)
        limit = next((each for each in limits if each is not None), -1)
        return min(limit, NO_LIMIT) if limit >= 0 else NO_LIMIT

    @property
    def stop_words(self) -> list[str]:
        """The words that end the answer and are not part of it."""
        return [word for word in ([self.stop] if isinstance(self.stop, str) else self.stop or []) if word]

    @property
    def logprob_count(self) -> int | None:
        """Number of most likely tokens beside each token; None: no probabilities are asked for."""
        count = max(
            self.top_logprobs or 0, self.n_probs or 0, int(self.logprobs or 0) if self.logprobs_is_number else 0
        )
        return min(count, MAX_TOP_LOGPROBS) if count or self.logprobs else None

    @property
    def logprobs_is_number(self) -> bool:
        """Whether ``logprobs`` is a number, as in completions."""
        return not isinstance(self.logprobs, bool)

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
    if not chat and request.prompt is None:
        raise EngineHttpError("`prompt` is missing")
    _check_numbers(request)
    _check_possible(request)
    return request


def _check_numbers(request: OgaRequest) -> None:
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


def _check_possible(request: OgaRequest) -> None:
    wants = {
        "tools": bool(request.tools) and request.tool_choice != "none",
        "several choices": (request.n or 1) > 1,
        "an answer of a given form": (request.response_format or ResponseFormat()).type != "text"
        or bool(request.grammar)
        or request.json_schema is not None,
        "biased tokens": bool(request.logit_bias),
    }
    for what, wanted in wants.items():
        if wanted:
            raise EngineHttpError(f"ONNX Runtime GenAI does not serve {what} here", 501, "not_supported_error")


def flatten_messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages as chat templates know them: content is one text; raises :class:`EngineHttpError`."""
    flattened = []
    for index, message in enumerate(messages):
        if not isinstance(message.get("role"), str):
            raise EngineHttpError(f"`messages[{index}].role` must be a string")
        flattened.append({**message, "content": _text(message.get("content"), index)})
    return flattened


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


def prompt_token_ids(prompt: list[Any], vocabulary: int) -> list[int] | None:
    """Return the token numbers of a prompt that is a list of them, None for one of texts; raises :class:`EngineHttpError`."""
    if not all(isinstance(token, int) and not isinstance(token, bool) for token in prompt):
        return None
    wrong = next((token for token in prompt if not 0 <= token < vocabulary), None)
    if wrong is not None:
        raise EngineHttpError(f"`prompt` has token {wrong}; the model's are 0 to {vocabulary - 1}")
    return prompt
