"""The API key that a request presents: in a header, or where a browser's WebSocket can put one. Pure."""

from __future__ import annotations

import base64
import binascii
from typing import Final

import falcon

from protocol.failures import Code, Failure

BEARER_PREFIX: Final = "bearer."
"""A WebSocket subprotocol with this prefix is a key, in base64url with or without padding."""
OPENAI_PREFIX: Final = "openai-insecure-api-key."
"""A WebSocket subprotocol with this prefix is a key as it is: OpenAI's clients in browsers send it so."""
WEBSOCKET_PATHS: Final = ("/logs/stream", "/realtime")
"""The ends of the paths of WebSockets."""
SUBPROTOCOL: Final = "lemonbus"
SUBPROTOCOLS: Final = (SUBPROTOCOL, "realtime")
"""One of these is in the answer to a handshake, if the client offered it; the second one is OpenAI's.

A browser that offers some needs one of them in the answer. It must not be the key, because proxies log answers.
"""
_REQUIRED: Final = "an API key is required: Authorization: Bearer KEY, or x-api-key"
_REQUIRED_BY_WEBSOCKET: Final = (
    f"{_REQUIRED}; in a browser ?api_key=KEY or the subprotocols {SUBPROTOCOL} and {BEARER_PREFIX}BASE64URL"
)


def presented_key(req: falcon.Request) -> bytes:
    """Return the key of a request; raises ``unauthorized`` if there is none.

    ``Authorization: Bearer`` takes precedence over ``x-api-key``. A page in a browser cannot set headers for a
    WebSocket, so its handshake may also carry the key as a subprotocol or in the query. Other requests may not, because
    every proxy on the way logs addresses. This includes requests for a WebSocket on routes that have none.
    """
    given: str = req.env.get("HTTP_X_API_KEY", "")
    scheme, _, token = req.env.get("HTTP_AUTHORIZATION", "").partition(" ")
    if scheme.lower() == "bearer":
        given = token.strip()
    if given:
        # WSGI passes headers as latin-1.
        return given.encode("latin-1", "replace")
    if (req.get_header("Upgrade") or "").lower() != "websocket" or not req.path.endswith(WEBSOCKET_PATHS):
        raise Failure(Code.UNAUTHORIZED, _REQUIRED).raised()
    for offered in map(str.strip, (req.get_header("Sec-WebSocket-Protocol") or "").split(",")):
        if offered.startswith(BEARER_PREFIX):
            return _decoded(offered.removeprefix(BEARER_PREFIX))
        if offered.startswith(OPENAI_PREFIX):
            return offered.removeprefix(OPENAI_PREFIX).encode("latin-1", "replace")
    if in_query := req.get_param("api_key", default=""):
        return in_query.encode()
    raise Failure(Code.UNAUTHORIZED, _REQUIRED_BY_WEBSOCKET).raised()


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise Failure(Code.UNAUTHORIZED, f"the subprotocol {BEARER_PREFIX}… is not base64url").raised() from None
