"""llama.cpp's ``/props``: the properties of a loaded model and how it generates by default, without paths of this machine."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any, Final

import falcon
import msgspec

from gateway.api.common.inference.inference_resource import TranslatedRequest, answer_inference
from gateway.api.llamacpp.native_requests import chosen_model
from gateway.bus.session import SupervisorSession
from gateway.requests.answer_stream import WholeAnswer
from gateway.requests.late_answer import AnswerFormat
from protocol.failures import DECODE_ERRORS, not_understood

_object: Final = msgspec.json.Decoder(dict[str, Any]).decode


def public_props(answer: bytes, model: str) -> bytes:
    """Return the engine's properties for a client: ``model_path`` becomes a bare file name, ``model_alias`` the model's name."""
    try:
        props = _object(answer)
        props["model_path"] = PurePosixPath(props["model_path"].replace("\\", "/")).name
    except (LookupError, AttributeError, *DECODE_ERRORS) as problem:
        raise not_understood(problem) from None
    return msgspec.json.encode({**props, "model_alias": model})


class PropsResource:
    """``GET props``."""

    def __init__(self, session: SupervisorSession) -> None:
        """Ask engines through ``session``."""
        self._session = session

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer for the loaded model used last, or for ``?model=``.

        It loads nothing: a page of another site can make a browser send a GET, and that must not download a model.
        """

        def write(answer: WholeAnswer) -> bytes:
            return public_props(answer.body, answer.model)

        form = AnswerFormat(falcon.MEDIA_JSON, write)
        translated = TranslatedRequest("props", chosen_model(req), b"{}", weight=0, answer=form)
        answer_inference(self._session, req, resp, translated)
