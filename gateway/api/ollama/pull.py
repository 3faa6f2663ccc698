"""``POST /api/pull``: downloads a model, and streams its progress unless the request declines that."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Final

import msgspec

from gateway.api.common import ndjson
from gateway.api.common.operations import CHANGE, Stream
from gateway.api.common.progress_events import NdjsonProgressWriter
from gateway.api.common.routes import HttpCaller, Progressing, route
from gateway.api.ollama.models import MODEL, NAME_FIELDS, NamedModelRequest
from protocol.messages.calls import Progress
from protocol.messages.model_files import Pulled, PullModel


class OllamaPullRequest(NamedModelRequest):
    """``POST /api/pull``. ``insecure`` is accepted but has no effect here."""

    stream: bool | None = None


class PullStatus(msgspec.Struct):
    """The model is downloaded."""

    status: str
    done: bool


_SUCCESS: Final = PullStatus("success", done=True)


class OllamaPullWriter(NdjsonProgressWriter):
    """The lines of one download."""

    def __init__(self) -> None:
        """Nothing is written yet."""
        self._begun = False

    def progress(self, progress: Progress) -> bytes:
        """Return one ``pulling`` line.

        Clients show one bar for each ``digest``, and require its form. The hash of a file's content is known only at
        the end, so this is a hash of its name.
        """
        digest = hashlib.sha256(progress.file.encode("utf-8", "replace")).hexdigest()
        sizes = {"total": progress.bytes_total, "completed": progress.bytes_downloaded}
        line = ndjson.line({"status": f"pulling {progress.file}", "digest": f"sha256:{digest}", **sizes})
        return self._beginning() + line

    def _beginning(self) -> bytes:
        begun, self._begun = self._begun, True
        return b"" if begun else ndjson.line({"status": "pulling manifest"})

    def complete(self, _report: bytes) -> bytes:
        """Return the last lines."""
        return self._beginning() + ndjson.line({"status": "verifying sha256 digest"}) + ndjson.line(_SUCCESS)

    def ping(self) -> bytes:
        """Return the first line if nothing was written yet. NDJSON has no comments."""
        return self._beginning()


@route(
    "POST",
    "/api/pull",
    changes=True,
    needs=NAME_FIELDS,
    stream=Stream(ndjson.MEDIA_TYPE, '{"status":"pulling manifest"}\n{"status":"success","done":true}\n'),
    failures=CHANGE,
    examples={"with progress": MODEL, "whole": {**MODEL, "stream": False}},
)
def pull_model(caller: HttpCaller, request: OllamaPullRequest) -> PullStatus | Progressing:
    """Downloads a model."""
    caller.context.model = name = request.wanted()
    call = partial(PullModel, model=name, adopt=True)
    if request.stream is not False:
        return Progressing(partial(call, progress=True), OllamaPullWriter())
    caller.ask(call, Pulled)
    return _SUCCESS
