"""The access log: one line for each request, with the event `request`, that says what became of it."""

from __future__ import annotations

from typing import Any

from gateway.http.connections.response import HttpResponseWriter
from gateway.http.request_context import RequestContext
from protocol.failures import Failure
from protocol.runtime import logs


def write(
    context: RequestContext, environ: dict[str, Any], response: HttpResponseWriter, seconds: float, *, complete: bool
) -> None:
    """Log a request that was answered in ``seconds``; ``complete``: to its end."""
    path = environ.get("PATH_INFO", "")
    log_fields = context.log_fields()
    if not complete:
        log_fields["broken"] = True
    fields = {
        "request_id": context.label,
        "method": environ.get("REQUEST_METHOD"),
        "path": path,
        "status": response.status_code,
        "bytes": response.sent,
        "ms": round(seconds * 1e5) / 100,
        "client": environ.get("REMOTE_ADDR"),
        **log_fields,
    }
    logs.log_batched(context.level(path), "request", fields)


def write_turn(
    context: RequestContext, environ: dict[str, Any], status: int, seconds: float, *, audio_s: float
) -> None:
    """Log a request that came in a message of a WebSocket; ``audio_s``: the seconds of audio in it."""
    path = environ.get("PATH_INFO", "")
    fields = {
        "request_id": context.label,
        "method": "WEBSOCKET",
        "path": path,
        "status": status,
        "ms": round(seconds * 1e5) / 100,
        "audio_s": round(audio_s, 3),
        "client": environ.get("REMOTE_ADDR"),
        **context.log_fields(),
    }
    logs.log_batched(context.level(path), "request", fields)


def write_refused(failure: Failure, label: str, client: str) -> None:
    """Log a request whose head was refused; ``client``: its address, empty if it is not known."""
    fields = {"status": failure.http_status, "code": failure.code.value, "reason": failure.message}
    logs.get_logger().info("request", request_id=label, client=client, **fields)
