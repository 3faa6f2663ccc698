"""``POST /api/generate``: a prompt becomes a chat of one message, or with ``raw`` a completion of the bare prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from gateway.api.mullama.generation import sampling_fields
from gateway.api.mullama.generation.answers import text_fields
from gateway.api.mullama.generation.chat import content_with_images
from gateway.api.mullama.generation.generation_resource import Generation, GenerationResource, chat_options
from gateway.api.mullama.generation.sampling_fields import GenerationFields
from gateway.http.bodies import body_decoding
from protocol.failures import invalid

_UNSUPPORTED: Final = {
    "suffix": "a suffix is not supported here: llama.cpp models fill in between with POST /infill",
    "template": "a template in the request is not supported: the model's own template is used, or none with `raw`",
    "context": "`context` is not supported: send the conversation to /api/chat",
}
"""Ollama's fields that no other field can express. An empty value counts as absent."""


class GenerateRequest(GenerationFields, kw_only=True):
    """A request for a text."""

    prompt: str | None = None
    system: str | None = None
    images: list[str] | None = None
    raw: bool | None = None
    suffix: str | None = None
    template: str | None = None
    context: list[int] | None = None

    def check(self) -> None:
        """Raise ``invalid_request`` for what cannot be served."""
        for field, reason in _UNSUPPORTED.items():
            if getattr(self, field):
                raise invalid(reason, field)
        for field in ("system", "images"):
            if self.raw and getattr(self, field):
                raise invalid(f"`raw` excludes `{field}`: the prompt is the model's whole input", field)


class GenerateResource(GenerationResource):
    """``POST /api/generate``."""

    shape = staticmethod(text_fields)
    counted_as: ClassVar[str] = "completions"
    input_field: ClassVar[str] = "prompt"
    names: ClassVar[Mapping[str, str]] = {**GenerationResource.names, "messages": "images"}

    @staticmethod
    def read(data: bytes, client: str) -> Generation:
        """See :meth:`GenerationResource.read`."""
        request = body_decoding.decode(data, GenerateRequest, client)
        request.check()
        if not (request.prompt or request.images):
            return Generation(request, "", {}, empty=request.prompt is not None)
        return Generation(request, "completions", _raw(request)) if request.raw else _as_chat(request)


def _raw(request: GenerateRequest) -> dict[str, Any]:
    body = {"prompt": request.prompt, **sampling_fields.sampling_fields(request)}
    schema = sampling_fields.json_schema(request)
    if schema is not None:
        body["json_schema"] = schema
    if request.logprobs:
        body["logprobs"] = request.top_logprobs or 1
    return body


def _as_chat(request: GenerateRequest) -> Generation:
    system = [{"role": "system", "content": request.system}] if request.system else []
    content = content_with_images(request.prompt or "", request.images or [], "images")
    messages = [*system, {"role": "user", "content": content}]
    return Generation(request, "chat/completions", {"messages": messages, **chat_options(request)})
