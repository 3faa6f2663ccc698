"""``POST /api/pull``: downloads a model, and streams its progress unless the request declines that."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import ClassVar, Final

import falcon

from gateway.api.common import ndjson
from gateway.api.common.progress_events import ProgressWriter, stream_progress
from gateway.api.ollama.models import NamedModelRequest
from gateway.bus.session import SupervisorSession
from gateway.http.bodies import body_decoding
from gateway.http.request_context import request_context
from protocol.failures import Failure
from protocol.messages.calls import Progress
from protocol.messages.model_files import Pulled, PullModel

_SUCCESS: Final = ndjson.line({"status": "success", "done": True})


class OllamaPullRequest(NamedModelRequest):
    """``POST /api/pull``. ``insecure`` is accepted but has no effect here."""

    stream: bool | None = None


class OllamaPullWriter(ProgressWriter):
    """The lines of one download."""

    media_type: ClassVar[str] = ndjson.MEDIA_TYPE

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
        return self._beginning() + ndjson.line({"status": "verifying sha256 digest"}) + _SUCCESS

    def error(self, failure: Failure, label: str) -> bytes:
        """Return the last line of a download that failed."""
        return ndjson.error_line(failure, label)

    def ping(self) -> bytes:
        """Return the first line if nothing was written yet. NDJSON has no comments."""
        return self._beginning()


class OllamaPullResource:
    """``POST /api/pull``."""

    changes: ClassVar[frozenset[str]] = frozenset({"POST"})

    def __init__(self, session: SupervisorSession) -> None:
        """Call the supervisor through ``session``."""
        self._session = session

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Stream the progress until the model is downloaded; with ``"stream": false``, answer then."""
        request, _ = body_decoding.read_object(req, self._session.settings.body_limit, OllamaPullRequest)
        name = request_context(req.env).model = request.wanted()
        if request.stream is not False:
            build = partial(PullModel, model=name, progress=True, adopt=True)
            stream_progress(self._session, req, resp, build, OllamaPullWriter())
            return
        self._session.call(req.env, lambda number: PullModel(number, name, adopt=True), Pulled)
        resp.content_type = falcon.MEDIA_JSON
        resp.data = _SUCCESS
