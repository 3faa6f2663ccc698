"""Accepts a WebSocket on the port of HTTP, and ends it however its responder returns."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import falcon

from gateway.access.presented_key import SUBPROTOCOLS
from gateway.http.request_context import SOCKET_KEY, request_context
from gateway.websockets.adapter import WebSocketAdapter
from protocol.failures import Code, Failure, invalid
from protocol.runtime.deferred_module import DeferredModule

if TYPE_CHECKING:
    import simple_websocket
    from wsproto import utilities
else:  # imported for the first client: most gateways never have one, and the import takes a tenth of their start
    simple_websocket = DeferredModule("simple_websocket")
    utilities = DeferredModule("wsproto.utilities")

PING_INTERVAL_S: Final = 25.0
WRITE_TIMEOUT_S: Final = 30.0
"""Seconds after which a client is cut off if it takes nothing."""
CLOSE_TIMEOUT_S: Final = 0.5
"""Seconds that a client has to read why its connection ends."""
NORMAL, GOING_AWAY, POLICY_VIOLATION = 1000, 1001, 1008
"""Codes with which connections are closed."""
_MAX_REASON_BYTES: Final = 120
"""Of the reason in a close frame, which may have 123."""


class AcceptedWebSocket(NamedTuple):
    """One connection."""

    socket: Any
    """The :class:`simple_websocket.Server`."""
    adapter: WebSocketAdapter


def closed() -> tuple[type[BaseException], ...]:
    """Return the exceptions that say that a client has left."""
    return simple_websocket.ConnectionClosed, OSError


def check_upgrade(req: falcon.Request, resp: falcon.Response) -> None:
    """Refuse a request that asks for no WebSocket with 426."""
    if (req.get_header("Upgrade") or "").lower() != "websocket":
        resp.set_header("Upgrade", "websocket")
        raise Failure(Code.INVALID_REQUEST, "this route speaks WebSocket", status=426).raised()


@contextlib.contextmanager
def accepted(req: falcon.Request, max_message_size: int, receive_bytes: int = 4096) -> Iterator[AcceptedWebSocket]:
    """Answer the handshake; raises ``invalid_request`` for a wrong one. Nothing is written by HTTP from then on.

    ``max_message_size``: bytes of a message of the client; a larger one ends the connection. ``receive_bytes``: the most to read at once.
    """
    adapter = WebSocketAdapter(req.env[SOCKET_KEY], WRITE_TIMEOUT_S)
    # If the client does not offer it, nothing is compressed: compressing a large message would block other requests.
    env = {**req.env, "gunicorn.socket": adapter}  # the key that simple_websocket looks for
    env.pop("HTTP_SEC_WEBSOCKET_EXTENSIONS", None)
    try:
        socket = simple_websocket.Server.accept(
            env,
            subprotocols=SUBPROTOCOLS,
            receive_bytes=receive_bytes,
            ping_interval=PING_INTERVAL_S,
            max_message_size=max_message_size,
        )
    except (utilities.RemoteProtocolError, simple_websocket.ConnectionError) as problem:
        raise invalid(f"this is not a WebSocket handshake: {problem}") from None
    request_context(req.env).hand_over()
    try:
        yield AcceptedWebSocket(socket, adapter)
    finally:
        adapter.finish(socket.thread)


def close_for(socket: Any, failure: Failure) -> None:
    """Close a connection for a failure that was sent; raises one of :func:`closed` if the client has left."""
    refused = failure.code in (Code.UNAUTHORIZED, Code.FORBIDDEN)
    reason = failure.message.encode()[:_MAX_REASON_BYTES].decode(errors="ignore")
    socket.close(POLICY_VIOLATION if refused else GOING_AWAY, reason)
