"""Exceptions in this gateway process's own code: each is logged and counted.

Everything that catches one reports it here: request greenlets, message handlers, and gevent's hub, which would write it to
stderr. The answers to the supervisor's pings carry the count, and health shows it.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final

from protocol.failures import Code, Failure
from protocol.runtime import logs

INTERNAL_FAILURE: Final = Failure(Code.INTERNAL, "an internal error; find it in the log by this request id")
"""The answer to a request that such an exception is about."""


class InternalErrorLog:
    """Logs the programming errors of one process, and counts them."""

    def __init__(self) -> None:
        """Count from zero."""
        self.count = 0

    def log(self, problem: BaseException, event: str = "internal error", **fields: object) -> None:
        """Log an exception with its traceback, and count it. ``fields`` go into the log line."""
        self.count += 1
        logs.get_logger().error(event, **fields, errors=self.count, exc_info=problem)


INTERNAL_ERRORS: Final = InternalErrorLog()
"""The errors of this process. They come from places that have nothing else in common."""


def install_error_handler(hub: Any) -> None:
    """Make ``hub`` log and count what its callbacks and greenlets raise. As usual, it goes on afterwards."""

    def print_exception(
        _context: object, _kind: type[BaseException], problem: BaseException, _trace: TracebackType | None
    ) -> None:
        INTERNAL_ERRORS.log(problem)

    hub.print_exception = print_exception
