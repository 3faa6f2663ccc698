"""OpenAI's chat/completions, completions and embeddings: checks what must be understood, forwards the rest.

The middle language is OpenAI's, so bodies and events pass through as bytes wherever that is possible.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import falcon
import msgspec
from msgspec import Meta

from gateway.api.openai.event_stream import OpenAIEventStream
from gateway.bus.session import SupervisorSession
from gateway.http import bodies
from gateway.http.request_context import request_context
from gateway.requests import inference
from protocol.failures import invalid

MAX_STOPS: Final = 4
JSON_FORMATS: Final = ("json_object", "json_schema")
"""Types of ``response_format`` that the engine turns into a grammar of its own."""

Fraction = Annotated[float, Meta(ge=0, le=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Tokens = Annotated[int, Meta(ge=-1, le=2**31 - 1)]
"""-1 is llama.cpp's "until it ends"."""
Prompt = str | list[str | int | list[int]]


class SamplingFields(msgspec.Struct, kw_only=True):
    """The fields that chat and text completions share; what is not here passes through unseen."""

    model: str | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    stop: str | list[str] | None = None
    max_tokens: Tokens | None = None
    max_completion_tokens: Tokens | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Fraction | None = None
    min_p: Fraction | None = None
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    repeat_penalty: Annotated[float, Meta(ge=1, le=2)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    seed: int | None = None

    def check(self) -> None:
        """Raise what the types cannot say."""
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise invalid("`max_tokens` and `max_completion_tokens` are mutually exclusive", "max_tokens")
        if isinstance(self.stop, list) and len(self.stop) > MAX_STOPS:
            raise invalid(f"`stop` takes up to {MAX_STOPS} sequences, not {len(self.stop)}", "stop")


class ChatMessage(msgspec.Struct):
    """One message of a conversation."""

    role: str
    content: str | list[dict[str, Any]] | None = None


class ChatRequest(SamplingFields, kw_only=True):
    """``POST chat/completions``."""

    messages: list[ChatMessage]
    tools: list[dict[str, Any]] | None = None
    response_format: dict[str, Any] | None = None
    grammar: str | None = None
    json_schema: Any = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None

    def check(self) -> None:
        """Raise what the types cannot say."""
        super().check()
        if not self.messages:
            raise invalid("`messages` is empty", "messages")
        wants_json = self.json_schema is not None or (self.response_format or {}).get("type") in JSON_FORMATS
        if self.grammar and wants_json:
            raise invalid("`grammar` excludes `json_schema` and a `response_format` of JSON: send one", "grammar")


class TextRequest(SamplingFields, kw_only=True):
    """``POST completions``."""

    prompt: Prompt
    echo: bool | None = None
    logprobs: bool | Annotated[int, Meta(ge=0, le=128)] | None = None


class EmbeddingRequest(msgspec.Struct, kw_only=True):
    """``POST embeddings``."""

    input: Prompt
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Meta(ge=1)] | None = None


def prompts(value: Prompt, field: str) -> int:
    """Return how many prompts there are: a string and a list of tokens are one. Raises for none at all."""
    if isinstance(value, str):
        return 1
    if not value:
        raise invalid(f"`{field}` is empty", field)
    kinds = {type(item) for item in value}
    if int in kinds and len(kinds) == 1:
        return 1
    if int in kinds:
        raise invalid(f"`{field}` mixes token numbers with prompts", field)
    if any(item == [] for item in value):
        raise invalid(f"`{field}` has an empty list of tokens in it", field)
    return len(value)


class ChatCompletionsResource:
    """``POST chat/completions``."""

    def __init__(self, session: SupervisorSession) -> None:
        """Ask ``house``."""
        self._session = session

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer, streamed or whole."""
        data = bodies.read_json(req, self._session.settings.body_limit)
        request = bodies.decode(data, ChatRequest)
        request.check()
        answer(self._session, req, resp, "chat/completions", data, request, request.n or 1)


class CompletionsResource:
    """``POST completions``."""

    def __init__(self, session: SupervisorSession) -> None:
        """Ask ``house``."""
        self._session = session

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer, streamed or whole; whole answers also have the first choice's ``text`` on top."""
        data = bodies.read_json(req, self._session.settings.body_limit)
        request = bodies.decode(data, TextRequest)
        request.check()
        if request.stream and request.logprobs:
            raise invalid("`logprobs` is only available without `stream`", "logprobs")
        if request.stream and request.echo:
            raise invalid("`echo` is only available without `stream`", "echo")
        weight = prompts(request.prompt, "prompt") * (request.n or 1)
        echoed = texts(request.prompt) if request.echo else None
        answer(self._session, req, resp, "completions", data, request, weight)
        if not request.stream:
            resp.data = with_text(resp.data or b"", echoed, request.n or 1)


class EmbeddingsResource:
    """``POST embeddings``."""

    def __init__(self, session: SupervisorSession) -> None:
        """Ask ``house``."""
        self._session = session

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer in the format that was asked for."""
        data = bodies.read_json(req, self._session.settings.body_limit)
        request = bodies.decode(data, EmbeddingRequest)
        weight = prompts(request.input, "input")
        answer(self._session, req, resp, "embeddings", data, request, weight)


def answer(
    session: SupervisorSession,
    req: falcon.Request,
    resp: falcon.Response,
    endpoint: str,
    data: bytes,
    request: SamplingFields | EmbeddingRequest,
    weight: int,
) -> None:
    """Ask the house and make ``resp`` its answer."""
    context = request_context(req.env)
    context.model = request.model or ""
    streamed = isinstance(request, SamplingFields) and bool(request.stream)
    inference_request = inference.InferenceRequest(
        endpoint=endpoint, model=context.model, body=data, label=context.label, stream=streamed, weight=weight
    )
    if streamed:
        resp.stream = OpenAIEventStream(inference.stream(session, req.env, inference_request), context)
        resp.content_type = "text/event-stream; charset=utf-8"
        resp.set_header("Cache-Control", "no-cache")
        resp.set_header("X-Accel-Buffering", "no")
        return
    whole = inference.complete(session, req.env, inference_request)
    context.model = whole.model
    resp.content_type = falcon.MEDIA_JSON
    resp.data = whole.body


def texts(prompt: Prompt) -> list[str]:
    """Return the prompts as texts, for ``echo``; token numbers cannot be echoed."""
    if isinstance(prompt, str):
        return [prompt]
    if not all(isinstance(item, str) for item in prompt):
        raise invalid("`echo` needs a prompt of text, not of token numbers", "echo")
    return [str(item) for item in prompt]


class _Text(msgspec.Struct):
    text: str = ""


class _Texts(msgspec.Struct):
    choices: list[_Text] = []


_texts = msgspec.json.Decoder(_Texts).decode


def with_text(body: bytes, echoed: list[str] | None, n: int) -> bytes:
    """Return a completion with ``text`` on top, after ``echoed`` prompts were put before their choices."""
    if echoed is not None:
        document: dict[str, Any] = msgspec.json.decode(body)
        for place, choice in enumerate(document.get("choices", [])):
            prompt = echoed[min(choice.get("index", place) // n, len(echoed) - 1)]
            choice["text"] = prompt + choice.get("text", "")
        body = msgspec.json.encode(document)
    choices = _texts(body).choices
    first = msgspec.json.encode(choices[0].text if choices else "")
    return body.rstrip()[:-1] + b',"text":' + first + b"}"
