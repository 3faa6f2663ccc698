"""``completions`` of Lemonade's preview: takes the fields of its ``load``, and loads models that no catalogue has.

An unregistered checkpoint is downloaded and loaded, as by ``load``; so is a model for another device. Both change the
server, so keys without that scope and foreign pages may not do this.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import falcon

from gateway.api.common.inference.inference_resource import TranslatedRequest, answer_inference
from gateway.api.common.request_fields import check_cache_dir, check_load_words
from gateway.api.openai.completions import CompletionsResource, TextRequest
from gateway.http.bodies import body_decoding
from gateway.http.request_context import client_of, request_context
from protocol.failures import Code, LemonbusError
from protocol.messages.models import Loaded, LoadModel
from protocol.models.devices import HYBRID

_ACTION: Final = "load a model"


class PreviewTextRequest(TextRequest, kw_only=True):
    """The fields of ``load`` that a request may have."""

    device: str | None = None
    dtype: str | None = None
    cache_dir: str | None = None


class PreviewCompletionsResource(CompletionsResource):
    """``POST completions`` below the preview's prefixes."""

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer, after a load if the request asks for one or needs one."""
        translated = self.translated(req)
        fields = body_decoding.decode(translated.body, PreviewTextRequest, client_of(req.env))
        device = (fields.device or "").lower()
        check_load_words(device, fields.dtype or "")
        check_cache_dir(fields.cache_dir or "", self._session.settings)
        if translated.model and device not in ("", HYBRID):
            self._load(req, translated, device)
        try:
            answer_inference(self._session, req, resp, translated)
        except LemonbusError as problem:
            if problem.failure.code is not Code.MODEL_NOT_FOUND or "/" not in translated.model:
                raise
            self._load(req, translated, device)
            answer_inference(self._session, req, resp, translated)

    def _load(self, req: falcon.Request, translated: TranslatedRequest, device: str) -> None:
        """Wait until the model is ready on the device."""
        context = request_context(req.env)
        context.model = translated.model
        context.check_change(_ACTION)
        self._session.call(req.env, partial(LoadModel, model=translated.model, device=device), Loaded)
