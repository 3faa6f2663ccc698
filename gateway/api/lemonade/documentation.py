"""The log stream, which is not a declared route, and the name of Lemonade's routes in the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from gateway.api.common.operations import Documentation, Operation
from gateway.logs.stream import LogStreamResource
from protocol.failures import Code, Failure


class LogQuery(msgspec.Struct):
    """Which entries to send; `after_seq` and `boot` resume where an earlier reader stopped."""

    model: str | msgspec.UnsetType = msgspec.UNSET
    level: str | msgspec.UnsetType = msgspec.UNSET
    request_id: str | msgspec.UnsetType = msgspec.UNSET
    process: str | msgspec.UnsetType = msgspec.UNSET
    boot: str | msgspec.UnsetType = msgspec.UNSET
    after_seq: Annotated[int, Meta(ge=0)] | msgspec.UnsetType = msgspec.UNSET
    api_key: str | msgspec.UnsetType = msgspec.UNSET


_LOG_READER: Final = frozenset({Failure(Code.INVALID_REQUEST, "", status=426), Failure(Code.RATE_LIMITED, "")})

DOCUMENTATION: Final = Documentation(
    "Lemonade",
    "Loading, downloading and deleting models, backends, sampling defaults, and the state of the server.",
    {
        LogStreamResource: {
            "GET": Operation(
                "Follows the log over a WebSocket: one JSON object per message.",
                query=LogQuery,
                failures=_LOG_READER,
                status=101,
            )
        },
    },
)
