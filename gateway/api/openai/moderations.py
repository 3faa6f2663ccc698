"""OpenAI's ``moderations``, by a guard model of this server: the chat model that the setting ``moderation_model`` names.

Each input is a chat of its own, with the limits, the queue and the usage of any chat. The guard model's own template asks for the verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, NamedTuple

import falcon
import msgspec
from msgspec import structs

from gateway.api.common.inference.chat_fields import with_inline_media
from gateway.api.common.inference.inference_resource import InferenceResource, TranslatedRequest
from gateway.api.common.inference.whole_answers import read_completion
from gateway.api.common.operations import entries_of
from gateway.api.openai.guard_models import Input, ModerationResult, Word, moderation_result, read_verdict
from gateway.fetching.image_source import image_source
from gateway.http.request_context import request_context
from gateway.requests.answer_stream import Environ, WholeAnswer, complete
from gateway.requests.inference_request import InferenceRequest
from gateway.requests.request_session import RequestSession
from protocol.failures import DECODE_ERRORS, Code, Failure, invalid, not_understood
from protocol.messages.events import Outcome, total_outcome

MAX_INPUTS: Final = 256
"""Texts of one request. Each is judged after the one before it."""
_OPENAI_MODELS: Final = ("omni-moderation-", "text-moderation-")
"""How the names of OpenAI's own models begin, which clients send if they are not told another one: the configured model answers."""
_ENDPOINT: Final = "chat/completions"
_QUESTION: Final[dict[str, Any]] = {"max_tokens": 48, "temperature": 0, "logprobs": True, "top_logprobs": 5}
_words: Final = msgspec.json.Decoder(list[Word]).decode


class TextPart(msgspec.Struct, tag_field="type", tag="text"):
    """A text."""

    text: str


class ImageUrl(msgspec.Struct):
    """A picture, as a ``data:`` URL, or as one that the server may fetch."""

    url: str


class ImagePart(msgspec.Struct, tag_field="type", tag="image_url"):
    """A picture, for guard models that see."""

    image_url: ImageUrl


Parts = list[TextPart | ImagePart]


class ModerationRequest(msgspec.Struct, kw_only=True):
    """``POST moderations``: a text, several, or parts that are judged together."""

    input: str | Annotated[list[str | TextPart | ImagePart], entries_of("input")]
    model: str | None = None

    def inputs(self) -> list[str | Parts]:
        """Return what is to be judged, one by one; raises ``invalid_request``."""
        if isinstance(self.input, str):
            return [self.input]
        if not self.input:
            raise invalid("`input` is empty", "input")
        if len(self.input) > MAX_INPUTS:
            raise invalid(f"`input` takes up to {MAX_INPUTS} entries, not {len(self.input)}", "input")
        texts = [each for each in self.input if isinstance(each, str)]
        parts = [each for each in self.input if not isinstance(each, str)]
        if texts and parts:
            raise invalid("`input` mixes texts with parts of one input", "input")
        return [*texts] if texts else [parts]


class ModerationAnswer(msgspec.Struct):
    """The verdicts, in the order of the inputs."""

    id: str
    model: str
    """The guard model."""
    results: list[ModerationResult]


class ModerationsResource(InferenceResource[ModerationRequest]):
    """``POST moderations``."""

    request_type = ModerationRequest

    def translate(self, req: falcon.Request, request: ModerationRequest, _data: bytes) -> TranslatedRequest:
        """Make a chat of each input; raises ``unsupported_operation`` if there is no guard model."""
        model = request.model or ""
        if not model or model.startswith(_OPENAI_MODELS):
            model = self._session.settings.moderation_model
        if not model:
            reason = (
                "moderations are not served here: no guard model is configured. Set `moderation_model` to a model of the"
                " Llama Guard family, such as Llama-Guard-3-8B"
            )
            raise Failure(Code.UNSUPPORTED, reason).raised()
        inputs = request.inputs()
        image = image_source(self._session, req.env, _ENDPOINT, model)
        bodies = []
        for each in inputs:
            content = msgspec.to_builtins(each)
            body = msgspec.json.encode(
                {"model": model, "messages": [{"role": "user", "content": content}], **_QUESTION}
            )
            bodies.append(with_inline_media(body, [content], image))
        seen: list[Input] = ["text"]
        if any(isinstance(part, ImagePart) for each in inputs if not isinstance(each, str) for part in each):
            seen = ["text", "image"]
        return TranslatedRequest(_ENDPOINT, model, bodies[0], complete=_Judging(bodies, seen).complete)


class _Judging(NamedTuple):
    """The chats of one request."""

    bodies: Sequence[bytes]
    inputs: list[Input]

    def complete(self, session: RequestSession, env: Environ, request: InferenceRequest) -> WholeAnswer:
        """Ask for all verdicts, one after the other; as ``answer_stream.complete``."""
        context = request_context(env)
        results: list[ModerationResult] = []
        earlier: Outcome | None = None
        for body in self.bodies:
            whole = complete(session, env, structs.replace(request, body=body, earlier=earlier))
            outcome = whole.outcome if earlier is None else total_outcome([earlier, whole.outcome])
            earlier = structs.replace(outcome, token_times=b"")
            results.append(self._result(whole))
        context.inference, context.outcome = _ENDPOINT, earlier
        answer = ModerationAnswer(f"modr-{context.label}", whole.model, results)
        return whole._replace(body=msgspec.json.encode(answer), outcome=earlier or whole.outcome)

    def _result(self, whole: WholeAnswer) -> ModerationResult:
        choice = read_completion(whole).choices[0]
        logprobs = choice.logprobs.content if choice.logprobs is not None else None
        try:
            words = _words(msgspec.json.encode(logprobs or []))
        except DECODE_ERRORS as problem:
            raise not_understood(problem, whole.model) from None
        return moderation_result(read_verdict(choice.answered.content or "", words, whole.model), self.inputs)
