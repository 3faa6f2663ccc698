"""What those of Lemonade's routes take and answer that are no declared routes, for the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from gateway.api.common.operations import Documentation, Operation
from gateway.api.lemonade.system_info import SystemInfoResource
from gateway.logs.stream import LogStreamResource
from protocol.failures import Code, Failure


class SystemInfoAnswer(msgspec.Struct):
    """The machine, its devices, and the recipes that run on them."""

    devices: dict[str, Any]
    recipes: dict[str, Any]
    processor: str = msgspec.field(name="Processor")
    system: str = msgspec.field(name="OS Version")
    memory: str = msgspec.field(name="Physical Memory")


class SystemInfoQuery(msgspec.Struct):
    """With Python packages and other facts that help to find a fault."""

    verbose: bool = False


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
        SystemInfoResource: {
            "GET": Operation(
                "Shows the machine and the recipes that run on it.",
                answer=SystemInfoAnswer,
                query=SystemInfoQuery,
            )
        },
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
