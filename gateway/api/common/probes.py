"""``/live`` and ``/health``: probes for process monitors, without a version prefix. They do not ask the supervisor."""

from __future__ import annotations

from typing import Final

import falcon

from gateway.bus.session import SupervisorSession
from gateway.requests.admission import AdmissionState

_OK: Final = b'{"status":"ok"}'
_RECOVERING: Final = b'{"status":"recovering"}'


class LivenessResource:
    """``GET /live``: this process answers."""

    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """Answer 200."""
        resp.content_type = falcon.MEDIA_JSON
        resp.data = _OK


class ReadinessResource:
    """``GET /health``: whether this gateway accepts requests."""

    def __init__(self, session: SupervisorSession) -> None:
        """Report the state of ``session``."""
        self._session = session

    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """Answer 200, even while requests wait for a new supervisor.

        Raises a 503 with the reason if requests are not accepted.
        """
        self._session.check_readiness()
        resp.content_type = falcon.MEDIA_JSON
        resp.data = _RECOVERING if self._session.state is AdmissionState.RECOVERING else _OK
