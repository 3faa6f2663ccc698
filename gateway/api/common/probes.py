"""``/live`` and ``/health``: for those who watch the process, without version and without the supervisor."""

from __future__ import annotations

from typing import Final

import falcon

from gateway.bus.session import SupervisorSession
from gateway.requests.admission import AdmissionState

_OK: Final = b'{"status":"ok"}'


class LivenessResource:
    """The process answers."""

    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """Answer."""
        resp.content_type = falcon.MEDIA_JSON
        resp.data = _OK


class ReadinessResource:
    """Whether this gateway takes requests."""

    def __init__(self, session: SupervisorSession) -> None:
        """Call the supervisor through ``session``."""
        self._session = session

    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """200 if it does; 503 while it starts or stops."""
        if self._session.state is not AdmissionState.OPEN:
            self._session.admit()
        resp.content_type = falcon.MEDIA_JSON
        resp.data = _OK
