"""llama.cpp's own embeddings (``/embedding``, ``/embeddings``): a list with the vectors of each input."""

from __future__ import annotations

from typing import Annotated, Any

import falcon
import msgspec
from msgspec import Meta

from gateway.api.common.inference.inference_resource import InferenceResource, TranslatedRequest
from gateway.api.llamacpp.native_requests import Prompt, chosen_model, count_native_prompts
from protocol.failures import invalid


class NativeEmbeddingRequest(msgspec.Struct, kw_only=True):
    """The inputs, under either of two names. Other fields are passed on unread."""

    content: Prompt | None = None
    input: Prompt | None = None
    model: str | None = None
    embd_normalize: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    encoding_format: Any = None

    def weight(self) -> int:
        """Return the number of inputs; raises ``invalid_request``."""
        name, prompt = ("input", self.input) if self.input is not None else ("content", self.content)
        if prompt is None:
            raise invalid("`content` is required", "content")
        return count_native_prompts(prompt, name)


class NativeEmbeddingResource(InferenceResource[NativeEmbeddingRequest]):
    """``POST /embedding`` and ``/embeddings``."""

    request_type = NativeEmbeddingRequest

    def translate(self, req: falcon.Request, request: NativeEmbeddingRequest, data: bytes) -> TranslatedRequest:
        """Check the request. It goes to the engine unchanged."""
        return TranslatedRequest("embedding", chosen_model(req, request.model), data, weight=request.weight())
