"""``POST /api/models/pull``: downloads a model of the catalogue, or a checkpoint of a Hugging Face hub."""

from __future__ import annotations

from functools import partial

import msgspec

from gateway.api.common import model_facts, ndjson
from gateway.api.common.model_facts import ModelName
from gateway.api.common.operations import CHANGE, Stream
from gateway.api.common.progress_events import NdjsonProgressWriter
from gateway.api.common.routes import HttpCaller, Progressing, route
from protocol.messages.calls import Progress
from protocol.messages.model_files import Pulled, PullModel


class MullamaPullRequest(msgspec.Struct):
    """``POST /api/models/pull``."""

    name: ModelName
    stream: bool | None = None


class PulledCheckpoint(msgspec.Struct):
    """The model is downloaded."""

    status: str
    model: str
    repo: str
    size_bytes: int


class MullamaPullWriter(NdjsonProgressWriter):
    """The lines of one download. Each of several files adds to the sizes when it begins; ``progress`` never falls."""

    def __init__(self, name: str) -> None:
        """``name``: the client's name for the model."""
        self._name = name
        self._sizes: dict[int, int] = {}
        self._progress = 0.0

    def progress(self, progress: Progress) -> bytes:
        """Return one ``downloading`` line."""
        before = sum(size for index, size in self._sizes.items() if index < progress.file_index)
        self._sizes[progress.file_index] = progress.bytes_total
        fraction = progress.bytes_downloaded / progress.bytes_total if progress.bytes_total else 0.0
        done = (progress.file_index - 1 + min(1.0, fraction)) / max(1, progress.total_files)
        self._progress = max(self._progress, round(done, 4))
        return ndjson.line(
            {
                "status": "downloading",
                "progress": self._progress,
                "total_bytes": sum(self._sizes.values()),
                "downloaded_bytes": before + progress.bytes_downloaded,
            }
        )

    def complete(self, _report: bytes) -> bytes:
        """Return the last two lines."""
        return ndjson.line({"status": "verifying"}) + ndjson.line(
            {"status": "success", "model": self._name, "done": True}
        )


@route(
    "POST",
    "/api/models/pull",
    changes=True,
    stream=Stream(ndjson.MEDIA_TYPE, '{"status":"downloading","progress":0.5}\n{"status":"success","done":true}\n'),
    failures=CHANGE,
    examples={"with progress": {"name": "llama3.2:1b", "stream": True}},
)
def pull_model(caller: HttpCaller, request: MullamaPullRequest) -> PulledCheckpoint | Progressing:
    """Downloads a model.

    A client that hangs up does not stop the download.
    """
    caller.context.model = name = request.name
    call = partial(PullModel, model=name, adopt=True)
    if request.stream:
        return Progressing(partial(call, progress=True), MullamaPullWriter(name))
    pulled = caller.ask(call, Pulled)
    (details,) = model_facts.describe(caller, pulled.name)
    return PulledCheckpoint("success", name, model_facts.repository(details.entry.checkpoint), details.size)
