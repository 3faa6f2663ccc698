"""OpenAI's chat/completions and completions: checks what must be understood, and forwards the rest.

Engines also speak OpenAI's form, so bodies and events pass through as bytes wherever possible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, NamedTuple

import falcon
import msgspec
from msgspec import Meta

from gateway.api.common.inference.chat_fields import (
    ChatAnswerFormat,
    ChatMessage,
    ChatTool,
    EngineObject,
    check_tools,
    with_inline_media,
    with_refusals_as_texts,
)
from gateway.api.common.inference.inference_resource import InferenceResource, TranslatedRequest
from gateway.api.common.inference.sampling_fields import SamplingFields
from gateway.api.common.inference.stream_writer import EventStreamWriter
from gateway.api.common.inference.thinking import THINKING_FIELDS, with_thinking_as_asked
from gateway.api.common.operations import NOT_EMPTY, entries_of
from gateway.api.common.request_fields import check_empty_prompts
from gateway.api.openai.echoed_prompts import Echo
from gateway.api.openai.text_completion import TextStreamWriter, text_completion
from gateway.fetching.image_source import image_source
from gateway.requests.late_answer import AnswerFormat
from protocol.failures import invalid

MAX_STOPS: Final = 4
TOKEN_LIMITS: Final = ("max_tokens", "max_completion_tokens")
JSON_FORMATS: Final = ("json_object", "json_schema")
"""Types of ``response_format`` that the engine turns into its own grammar."""
_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

Tokens = Annotated[int, Meta(ge=-1, le=2**31 - 1)]
"""-1 is llama.cpp's "until it ends"."""
Prompt = str | Annotated[list[str | int | list[int]], NOT_EMPTY]


class _Unserved(NamedTuple):
    """A field that would change an answer but is not supported: refused by name, never ignored."""

    advice: str
    """What to send instead."""
    harmless: Callable[[Any, Mapping[str, msgspec.Raw]], bool] = lambda value, _: value in (False, [], {}, "")
    """Whether this value of the field asks for nothing. It gets the value and all fields."""


def _is_n(value: Any, fields: Mapping[str, msgspec.Raw]) -> bool:
    """Return whether another field for the number of completions has the value of ``n``, by which they are counted here."""
    return bool(value == msgspec.json.decode(fields.get("n", b"1")))


_CONSTRAINTS: Final = {
    **dict.fromkeys(
        ("guided_json", "structured_outputs"), _Unserved("send `response_format` or `json_schema`, or a `grammar`")
    ),
    **dict.fromkeys(
        ("guided_choice", "guided_grammar", "guided_regex", "regex", "ebnf"),
        _Unserved("send a `grammar` in llama.cpp's form"),
    ),
}
"""With these, clients of vLLM and SGLang constrain an answer."""
_CHOICES: Final = {"n_cmpl": _Unserved("ask for `n` choices", _is_n)}
"""llama-server prefers this field to ``n``."""
_UNSERVED_IN_CHATS: Final = {
    **_CONSTRAINTS,
    **_CHOICES,
    "functions": _Unserved("send `tools`"),
    "function_call": _Unserved("send `tool_choice`", lambda value, _: value == "none"),
    "modalities": _Unserved("answers are texts", lambda value, _: value in ([], ["text"])),
    "audio": _Unserved("answers are texts"),
    "web_search_options": _Unserved("no model here searches the web: give it a tool that does", lambda *_: False),
    "prediction": _Unserved("no model here takes a predicted answer"),
}
_UNSERVED_IN_COMPLETIONS: Final = {
    **_CONSTRAINTS,
    **_CHOICES,
    "suffix": _Unserved("ask `/infill`, with `input_prefix` and `input_suffix`"),
    "best_of": _Unserved("ask for `n` completions with `logprobs`, and choose one", _is_n),
}
_SELDOM: Final = _UNSERVED_IN_CHATS.keys() | THINKING_FIELDS
"""Fields of a chat about which something is to be done; most chats have none of them."""


def _check_unserved(fields: Mapping[str, msgspec.Raw], unserved: Mapping[str, _Unserved]) -> None:
    """Raise ``invalid_request``, naming the field and an alternative, if one of a request's ``fields`` has an effect."""
    for name, field in unserved.items():
        if name in fields and not field.harmless(msgspec.json.decode(fields[name]), fields):
            raise invalid(f"`{name}` is not served here: {field.advice}", name)


class GenerationRequest(SamplingFields, kw_only=True):
    """The fields that chat and text completions share. Other fields are passed on unread."""

    model: str | None = None
    stream: bool | None = None
    stream_options: EngineObject | None = None
    stop: str | list[str] | None = None
    max_tokens: Tokens | None = None
    max_completion_tokens: Tokens | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None

    @property
    def zero_limit(self) -> str:
        """The field that asks for no tokens at all; empty: none does."""
        return next((name for name in TOKEN_LIMITS if getattr(self, name) == 0), "")

    @property
    def may_generate_nothing(self) -> bool:
        """Whether an answer without generated tokens is meaningful."""
        return False

    def check(self) -> None:
        """Raise ``invalid_request`` for what the types cannot express."""
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise invalid("`max_tokens` and `max_completion_tokens` are mutually exclusive", "max_tokens")
        if 0 in (self.max_tokens, self.max_completion_tokens) and not self.may_generate_nothing:
            name = self.zero_limit
            reason = f"`{name}` must be at least 1, or -1 for no limit: engines treat 0 differently"
            raise invalid(reason, name)
        if isinstance(self.stop, list) and len(self.stop) > MAX_STOPS:
            raise invalid(f"`stop` takes up to {MAX_STOPS} sequences, not {len(self.stop)}", "stop")


class ChatRequest(GenerationRequest, kw_only=True):
    """``POST chat/completions``."""

    messages: Annotated[list[ChatMessage], entries_of("messages")]
    tools: list[ChatTool] | None = None
    tool_choice: str | EngineObject | None = None
    response_format: ChatAnswerFormat | None = None
    grammar: str | None = None
    json_schema: Any = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None

    def check(self) -> None:
        """Raise ``invalid_request`` for what the types cannot express."""
        super().check()
        if not self.messages:
            raise invalid("`messages` is empty", "messages")
        if self.tools:
            check_tools(self.tools)
        kind = self.response_format.type if self.response_format else None
        if kind not in (None, "", "text", *JSON_FORMATS):
            raise invalid(f"`response_format.type` can be text, {' or '.join(JSON_FORMATS)}", "response_format.type")
        wants_json = self.json_schema is not None or kind in JSON_FORMATS
        if self.grammar and wants_json:
            raise invalid(
                "`grammar` excludes `json_schema` and a `response_format` of JSON: send only one of them", "grammar"
            )


class TextRequest(GenerationRequest, kw_only=True):
    """``POST completions``."""

    prompt: Prompt
    echo: bool | None = None
    logprobs: bool | Annotated[int, Meta(ge=0, le=128)] | None = None

    @property
    def may_generate_nothing(self) -> bool:
        """An echoed prompt can be scored without generating."""
        return bool(self.echo)

    def echoed(self) -> Echo | None:
        """Return what to do with the prompts; None for an answer without them."""
        if not self.echo:
            return None
        one = isinstance(self.prompt, str) or type(self.prompt[0]) is int
        prompts: Any = [self.prompt] if one else self.prompt
        alternatives: int | None = 0 if self.logprobs is True else self.logprobs
        if self.logprobs is False:
            alternatives = None
        return Echo(prompts, self.n or 1, alternatives, generates=not self.zero_limit)

    def check(self) -> None:
        """Raise ``invalid_request`` for what the types cannot express."""
        super().check()
        if self.stream and self.logprobs is True:
            raise invalid("`logprobs` must be a number in a stream, not true", "logprobs")
        if self.stream and self.echo:
            raise invalid("`echo` is only available without `stream`", "echo")


def count_prompts(value: Prompt, field: str) -> int:
    """Return how many prompts ``value`` holds; a string or a list of token numbers is one.

    Raises ``invalid_request``.
    """
    if isinstance(value, str):
        return 1
    if not value:
        raise invalid(f"`{field}` is empty", field)
    kinds = set(map(type, value))
    if int in kinds and len(kinds) == 1:
        return 1
    if int in kinds:
        raise invalid(f"`{field}` mixes token numbers with prompts", field)
    if [] in value:
        raise invalid(f"`{field}` has an empty list of tokens in it", field)
    return len(value)


class ChatCompletionsResource(InferenceResource[ChatRequest]):
    """``POST chat/completions``."""

    request_type = ChatRequest

    def translate(self, req: falcon.Request, request: ChatRequest, data: bytes) -> TranslatedRequest:
        """Check the request. It goes to the engine unchanged, except for fetched images."""
        request.check()
        fields = _object(data)
        if not _SELDOM.isdisjoint(fields):
            _check_unserved(fields, _UNSERVED_IN_CHATS)
            data = with_thinking_as_asked(data, fields)
        contents = [message.content for message in request.messages]
        if list in map(type, contents):
            image = image_source(self._session, req.env, "chat/completions", request.model)
            data = with_inline_media(with_refusals_as_texts(data), contents, image)
        writer = EventStreamWriter() if request.stream else None
        return TranslatedRequest("chat/completions", request.model or "", data, weight=request.n or 1, writer=writer)


class CompletionsResource(InferenceResource[TextRequest]):
    """``POST completions``."""

    request_type = TextRequest

    def translate(self, _req: falcon.Request, request: TextRequest, data: bytes) -> TranslatedRequest:
        """Check the request. A whole answer also has the first choice's ``text`` at its top level."""
        request.check()
        _check_unserved(_object(data), _UNSERVED_IN_COMPLETIONS)
        n = request.n or 1
        weight = count_prompts(request.prompt, "prompt") * n
        check_empty_prompts(request.prompt, n)
        if (echo := request.echoed()) is not None:
            if request.zero_limit:
                data = msgspec.json.encode({**_object(data), request.zero_limit: 1})
            return TranslatedRequest("completions", request.model or "", data, weight=weight, complete=echo.complete)
        return TranslatedRequest(
            "completions",
            request.model or "",
            data,
            weight=weight,
            writer=TextStreamWriter() if request.stream else None,
            answer=AnswerFormat(falcon.MEDIA_JSON, lambda answer: text_completion(answer.body)),
        )
