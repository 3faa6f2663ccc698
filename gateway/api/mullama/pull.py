"""``POST /api/models/pull``: downloads a model of the catalogue, or a checkpoint of a Hugging Face hub."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import falcon
import msgspec

from gateway.api.common import ndjson
from gateway.api.common.models import model_facts
from gateway.api.common.models.model_facts import ModelName
from gateway.api.common.progress_events import ProgressWriter, stream_progress
from gateway.bus.session import SupervisorSession
from gateway.http.bodies import body_decoding
from gateway.http.request_context import request_context
from protocol.failures import Failure
from protocol.messages.calls import Progress
from protocol.messages.model_files import Pulled, PullModel


class MullamaPullRequest(msgspec.Struct):
    """``POST /api/models/pull``."""

    name: ModelName
    stream: bool | None = None


class MullamaPullWriter(ProgressWriter):
    """The lines of one download. Each of several files adds to the sizes when it begins; ``progress`` never falls."""

    media_type: ClassVar[str] = ndjson.MEDIA_TYPE

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

    def error(self, failure: Failure, label: str) -> bytes:
        """Return the last line of a download that failed."""
        return ndjson.error_line(failure, label)

    def ping(self) -> bytes:
        """Return nothing: there are no comments in NDJSON."""
        return b""


class MullamaPullResource:
    """``POST /api/models/pull``."""

    changes: ClassVar[frozenset[str]] = frozenset({"POST"})

    def __init__(self, session: SupervisorSession) -> None:
        """Call the supervisor through ``session``."""
        self._session = session

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer when the model is downloaded. With ``stream``, stream its progress until then.

        A client that hangs up does not stop the download.
        """
        request, _ = body_decoding.read_object(req, self._session.settings.body_limit, MullamaPullRequest)
        name = request_context(req.env).model = request.name
        if request.stream:
            build = partial(PullModel, model=name, progress=True, adopt=True)
            stream_progress(self._session, req, resp, build, MullamaPullWriter(name))
            return
        pulled = self._session.call(req.env, lambda number: PullModel(number, name, adopt=True), Pulled)
        (details,) = model_facts.describe(self._session, req.env, pulled.name)
        answer: dict[str, Any] = {
            "status": "success",
            "model": name,
            "repo": model_facts.repository(details.entry.checkpoint),
            "size_bytes": details.size,
        }
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(answer)
