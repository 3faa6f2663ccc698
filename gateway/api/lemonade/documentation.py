"""The log stream, which is not a declared route, and the name of Lemonade's routes in the OpenAPI document."""

from __future__ import annotations

from typing import Final

from gateway.api.common.operations import Documentation, Operation
from gateway.logs.log_entries import LogQuery
from gateway.logs.stream import LogStreamResource
from protocol.failures import Code, Failure


class LogStreamQuery(LogQuery):
    """Which entries to send, and the API key of a client that can send no header."""

    api_key: str = ""


_LOG_READER: Final = frozenset({Failure(Code.INVALID_REQUEST, "", status=426), Failure(Code.RATE_LIMITED, "")})

DOCUMENTATION: Final = Documentation(
    "Lemonade",
    "Loading, downloading and deleting models, backends, sampling defaults, and the state of the server.",
    {
        LogStreamResource: {
            "GET": Operation(
                "Follows the log over a WebSocket: one JSON object per message.",
                query=LogStreamQuery,
                failures=_LOG_READER,
                status=101,
            )
        },
    },
)
