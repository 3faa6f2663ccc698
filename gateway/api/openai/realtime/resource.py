"""``/realtime``: transcription of live audio over a WebSocket, on the port of HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

import falcon

from gateway.access.connection_places import ConnectionPlaces
from gateway.access.scopes import Scope
from gateway.bus.session import SupervisorSession
from gateway.http.request_context import request_context
from gateway.websockets import handshake
from protocol.failures import Code, Failure

MAX_SESSIONS: Final = 64
"""Sessions of one process."""
MAX_SESSIONS_OF_KEY: Final = 32
"""Those with the same API key, unless it is an administrator's."""
_RECEIVE_BYTES: Final = 64 * 1024
_CALLS: Final = Failure(
    Code.UNSUPPORTED,
    "calls over WebRTC are not served here: open a WebSocket on this path, and send the audio in it",
)


class RealtimeResource:
    """The route."""

    scopes: ClassVar[Mapping[str, Scope]] = {"GET": Scope.INFERENCE, "POST": Scope.INFERENCE}
    uses_models: ClassVar[bool] = True
    """GET has a WebSocket, in which requests to models come: their checks apply, because CORS does not apply to WebSockets."""

    def __init__(self, session: SupervisorSession) -> None:
        """Ask engines through ``session``."""
        self._session = session
        self._places = ConnectionPlaces(MAX_SESSIONS, MAX_SESSIONS_OF_KEY, "sessions", "send audio to this process")

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Upgrade, and serve until either side ends the session."""
        self._session.admission.admit_inference()
        context = request_context(req.env)
        self._places.check(context)
        handshake.check_upgrade(req, resp)
        from gateway.api.openai.realtime import session  # noqa: PLC0415 - most gateways never have one

        most = session.MAX_MESSAGE_BYTES
        with self._places.taken(context), handshake.accepted(req, most, _RECEIVE_BYTES) as accepted:
            session.RealtimeSession(self._session, req, accepted).serve()

    def on_post(self, _req: falcon.Request, _resp: falcon.Response) -> None:
        """Refuse a call over WebRTC."""
        raise _CALLS.raised()
