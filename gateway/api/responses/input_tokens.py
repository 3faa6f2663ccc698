"""``POST responses/input_tokens``: the number of tokens in a response's prompt, by the engine's template and tokenizer."""

from __future__ import annotations

from typing import Final

import falcon
import msgspec

from gateway.api.common.inference.inference_resource import InferenceResource, TranslatedRequest
from gateway.api.common.inference.whole_answers import read_input_tokens
from gateway.api.responses.conversation import ResponseIds, read_conversation
from gateway.api.responses.input.chat_request import NAMES, chat_body
from gateway.api.responses.input.request import ResponseRequest
from gateway.api.responses.store_client import StoreClient
from gateway.bus.session import SupervisorSession
from gateway.fetching.image_source import image_source
from gateway.requests.answer_stream import WholeAnswer
from gateway.requests.late_answer import AnswerFormat

ENDPOINT: Final = "chat/completions/input_tokens"
"""The endpoint of the internal format."""


class InputTokens(msgspec.Struct, tag_field="object", tag="response.input_tokens"):
    """A count of tokens."""

    input_tokens: int


class InputTokensResource(InferenceResource[ResponseRequest]):
    """``POST responses/input_tokens``."""

    request_type = ResponseRequest

    def __init__(self, session: SupervisorSession, store: StoreClient) -> None:
        """Ask engines through ``session``; ``store`` has the conversations."""
        super().__init__(session)
        self._store = store

    def translate(self, req: falcon.Request, request: ResponseRequest, _data: bytes) -> TranslatedRequest:
        """Check the request. The engine counts what it would get for the response."""
        request.check()
        image = image_source(self._session, req.env, ENDPOINT, request.model)
        earlier, own = read_conversation(self._store, req.env, request, ResponseIds(), image)
        body = chat_body(msgspec.structs.replace(request, stream=False), [*earlier, *own], image)
        return TranslatedRequest(
            ENDPOINT,
            request.model or "",
            msgspec.json.encode(body),
            weight=0,
            answer=AnswerFormat(falcon.MEDIA_JSON, token_count),
            names=NAMES,
        )


def token_count(answer: WholeAnswer) -> bytes:
    """Return the JSON of a count; raises ``backend_error`` for any other answer."""
    return msgspec.json.encode(InputTokens(read_input_tokens(answer)))
