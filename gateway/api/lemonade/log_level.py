"""``log-level``: the least level that all processes of the running server log."""

from __future__ import annotations

from typing import Literal

import msgspec

from gateway.api.common.operations import BODY
from gateway.api.common.routes import HttpCaller, route
from protocol.config.settings import LogLevel
from protocol.messages.reload import SetLogLevel


class LogLevelRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The level."""

    level: LogLevel


class LogLevelAnswer(msgspec.Struct):
    """The level, as it was set."""

    status: Literal["success"]
    level: LogLevel


@route("POST", "log-level", changes=True, failures=BODY, examples={"more lines": {"level": "debug"}})
def set_log_level(caller: HttpCaller, request: LogLevelRequest) -> LogLevelAnswer:
    """Sets the least level that the server logs, until the configuration is read again or the server is started again.

    All processes obey it a moment later, and nothing is restarted.
    """
    caller.ask(lambda number: SetLogLevel(number, request.level), type(None))
    return LogLevelAnswer("success", request.level)
