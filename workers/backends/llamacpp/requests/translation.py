"""Puts requests of the internal format to llama-server: checks them against the model, and translates them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from protocol.failures import invalid
from protocol.models.sampling import SamplingValue
from workers.backends.engine_request import EngineRequest
from workers.backends.llamacpp.descriptor import DESCRIPTOR
from workers.backends.llamacpp.requests.chosen_logprobs import (
    check_drafted_logprobs,
    request_for_one_alternative,
    with_chosen_logprobs,
)
from workers.backends.llamacpp.requests.context_check import check_context, check_probabilities, check_read
from workers.backends.llamacpp.requests.native_request import native_request
from workers.backends.llamacpp.requests.offered_tools import offered_tools
from workers.backends.requests.generation_request import SHORT_BODY_BYTES, generation_request
from workers.backends.requests.request_rules import CHATS

_READS: Final = {
    "tokenize": "/tokenize",
    "detokenize": "/detokenize",
    "apply-template": "/apply-template",
    "chat/completions/input_tokens": "/v1/chat/completions/input_tokens",
}
"""Endpoints that llama-server answers without a slot → path in the engine."""


class RequestFacts(NamedTuple):
    """What is known of an engine and its model."""

    slots: int
    context: int
    """Context tokens of one slot; 0 if unknown."""
    most_context: int
    """See :attr:`~workers.backends.base.Backend.most_context`."""
    takes_tools: bool
    """The model's chat template has a place for tools."""
    drafts: bool
    """A draft model guesses tokens."""
    announces: bool
    """The engine first sends progress at once, if it was asked for it."""
    sampling: Mapping[str, SamplingValue]
    """The sampling defaults that were set."""


def engine_request(endpoint: str, body: bytes, stream: bool, engine: RequestFacts) -> EngineRequest:
    """Return the request for llama-server; raises a failure for what it cannot do."""
    tools = offered_tools(body, has_place=engine.takes_tools) if endpoint in CHATS else None
    body = tools.body if tools else body
    if endpoint in _READS:
        check_read(body, engine.context)
        return EngineRequest("POST", _READS[endpoint], body, prompts=0)
    if endpoint == "infill":
        check_read(body, engine.context)  # it tokenizes everything, and uses as much as fits into its context
    else:
        check_context(body, engine.context, engine.most_context)
    if endpoint in ("embeddings", "rerank"):
        return EngineRequest("POST", f"/v1/{endpoint}", body)
    if endpoint == "embedding":
        return EngineRequest("POST", "/embedding", body)
    if endpoint in ("completion", "infill"):
        native = native_request(endpoint, body, stream, engine.sampling, DESCRIPTOR.sampling)
        check_probabilities(native, engine.context)
        return _announced(native, body, engine)
    if engine.drafts:
        check_drafted_logprobs(body)
    for_chosen = request_for_one_alternative(endpoint, body)
    body = for_chosen or body
    generation = generation_request(endpoint, body, stream, engine.sampling, DESCRIPTOR.sampling)
    check_probabilities(generation, engine.context)
    generation = _announced(generation, body, engine)
    if generation.choices > engine.slots:
        reason = (
            f"`n` is {generation.choices}; this model computes at most {engine.slots} choices at once (option `slots`)"
        )
        raise invalid(reason, "n")
    generation = with_chosen_logprobs(generation) if for_chosen else generation
    return tools.applied_to(generation) if tools else generation


def _announced(request: EngineRequest, body: bytes, engine: RequestFacts) -> EngineRequest:
    """Return the request, marked if the engine is asked for progress and announces it."""
    asked = request.streamed and len(body) > SHORT_BODY_BYTES
    return request._replace(announced=True) if asked and engine.announces else request
