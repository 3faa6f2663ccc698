"""``pull``: downloads a model, and registers it first if the request describes a new one; and ``downloads``, which shows those that run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Final

import falcon
import msgspec

from gateway.access.scopes import Scope
from gateway.api.common.progress_events import ProgressWriter, complete_event, stream_progress
from gateway.api.common.request_fields import (
    MAX_NAME_LENGTH,
    JsonObject,
    chosen_options,
    flag_of,
    model_of,
    object_of,
    optional_body,
    params_as_sent,
    text_of,
)
from gateway.bus.session import SupervisorSession
from gateway.http.request_context import request_context
from protocol.failures import invalid
from protocol.messages.model_files import DownloadReport, ListDownloads, Pulled, PullModel, Registration
from protocol.wire import envelope

HUGGING_FACE: Final = "huggingface"
LABEL_BY_SWITCH: Final = {
    "reasoning": "reasoning",
    "vision": "vision",
    "embedding": "embeddings",
    "reranking": "reranking",
}
"""Switch of a request → the label that it gives the model."""


def registration_of(body: JsonObject) -> Registration | None:
    """Return the model that a request registers, None if it only names one; raises ``invalid_request``.

    Only the types are checked here: the supervisor checks the name, the recipe and the checkpoint.
    """
    texts = {key: text_of(body, key) for key in ("checkpoint", "recipe", "mmproj")}
    labels = [label for key, label in LABEL_BY_SWITCH.items() if flag_of(body, key)]
    checkpoints = _checkpoints_of(body)
    options = chosen_options(object_of(body, "recipe_options"))
    if not any(texts.values()) and not any((labels, checkpoints, options)):
        return None
    if not model_of(body).startswith("user."):
        field = "model_name" if body.get("model_name") else "model"
        raise invalid(f"`{field}` of a model that is registered must begin with `user.`", field)
    if not texts["checkpoint"] and not checkpoints:
        raise invalid("`checkpoint` is required to register a model", "checkpoint")
    if not texts["recipe"]:
        raise invalid("`recipe` is required to register a model", "recipe")
    return Registration(**texts, labels=labels, checkpoints=checkpoints, options=options)


def check_source(body: JsonObject) -> None:
    """Raise ``invalid_request``, naming the field, for a registry of models other than Hugging Face's."""
    for key in ("source", "registry_source"):
        if text_of(body, key) not in ("", HUGGING_FACE):
            raise invalid(f"`{key}` must be {HUGGING_FACE}: models come from no other registry here", key)


def _checkpoints_of(body: JsonObject) -> dict[str, str]:
    """Return ``checkpoints``, empty if it is absent; raises ``invalid_request``."""
    given = object_of(body, "checkpoints")
    if not all(isinstance(each, str) and len(each) <= MAX_NAME_LENGTH for each in given.values()):
        raise invalid("`checkpoints` must be an object of strings", "checkpoints")
    return {key: str(value) for key, value in given.items() if value}


class PullEventWriter(ProgressWriter):
    """The events of one download."""

    def complete(self, report: bytes) -> bytes:
        """Return the documented ``complete`` event."""
        return complete_event(envelope.unpack_payload(report, Pulled).files)


class PullResource:
    """``POST pull``: downloads a model that is registered, or that the request registers."""

    changes: ClassVar[frozenset[str]] = frozenset({"POST"})

    def __init__(self, session: SupervisorSession) -> None:
        """Call the supervisor through ``session``."""
        self._session = session

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer when the model is downloaded; with ``stream`` stream its progress until then.

        With ``subscribe`` false beside it, answer at once: ``downloads`` shows the progress.

        A client that hangs up does not stop the download.
        """
        body = optional_body(req, self._session.settings)
        name = request_context(req.env).model = model_of(body)
        check_source(body)
        registration = registration_of(body)
        stream = flag_of(body, "stream")
        build = partial(PullModel, model=name, progress=stream, registration=registration)
        with params_as_sent(body):
            if stream and body.get("subscribe") is not None and not flag_of(body, "subscribe"):
                detached = partial(PullModel, model=name, registration=registration, detached=True)
                resp.content_type = falcon.MEDIA_JSON
                resp.data = msgspec.json.encode(download_job(self._session.call(req.env, detached, DownloadReport)))
                return
            if stream:
                stream_progress(self._session, req, resp, build, PullEventWriter())
                return
            pulled = self._session.call(req.env, build, Pulled)
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(
            {"status": "success", "message": f"Installed model: {pulled.name}", "model_name": pulled.name}
        )


def download_job(report: DownloadReport) -> dict[str, Any]:
    """Return a download as ``downloads`` shows it. ``percent`` and the bytes are those of the present file."""
    progress, failure = report.progress, report.failure
    complete = report.ended and failure is None
    job: dict[str, Any] = {
        "id": f"model:{report.model}",
        "type": "model",
        "model_name": report.model,
        "status": "completed" if complete else "error" if failure else "downloading",
        "running": not report.ended,
        "complete": complete,
        "file": progress.file if progress else "",
        "file_index": progress.file_index if progress else 0,
        "total_files": progress.total_files if progress else 0,
        "bytes_downloaded": progress.bytes_downloaded if progress else 0,
        "bytes_total": progress.bytes_total if progress else 0,
        "percent": 100 if complete else progress.percent if progress else 0,
    }
    return {**job, "error": failure.message, "code": failure.code.value} if failure else job


class DownloadsResource:
    """``GET downloads``: those that run, and those that ended within half a minute."""

    scopes: ClassVar[Mapping[str, Scope]] = {"GET": Scope.INFERENCE}

    def __init__(self, session: SupervisorSession) -> None:
        """Call the supervisor through ``session``."""
        self._session = session

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer with a list, of models that the caller's key may use."""
        reports = self._session.call(req.env, ListDownloads, list[DownloadReport])
        may_use = request_context(req.env).may_use
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode([download_job(report) for report in reports if may_use(report.model)])
