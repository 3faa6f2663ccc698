"""The result of an exception in the supervisor's own code: a failure for the caller, a traceback in the log, a count.

No exception ends the supervisor. Each step that a call or request waits for is wrapped, so that it is answered. The
event loop catches other exceptions (:class:`protocol.runtime.loop.Loop`).
"""

from __future__ import annotations

import traceback
from typing import Final

from protocol.failures import Code, Failure, LemonbusError, write_failure
from protocol.runtime import logs

_MAX_DETAIL: Final = 2000
"""Characters of a traceback that travel with the failure: its end says what happened."""

log = logs.get_logger()


class InternalErrors:
    """Turns exceptions into failures and counts those that are programming errors."""

    def __init__(self) -> None:
        """Count from zero."""
        self.count = 0

    def failure_of(self, problem: Exception, **context: object) -> Failure:
        """Return the failure to answer with. ``context`` goes into the log line.

        A ``LemonbusError`` is its own failure. An ``OSError`` is the machine's fault, and the failure says so. Anything
        else is a programming error: its traceback is logged, and the caller gets ``internal_error``.
        """
        if isinstance(problem, LemonbusError):
            return problem.failure
        if isinstance(problem, OSError):
            log.error("the operating system refused an operation", **context, exc_info=problem)
            reason = f"the server could not do that: {problem.strerror or type(problem).__name__}"
            return write_failure(problem, reason)
        self.count += 1
        log.error("internal error", **context, exc_info=problem)
        trace = "".join(traceback.format_exception(problem))[-_MAX_DETAIL:]
        detail = trace.encode("utf-8", "backslashreplace").decode()
        return Failure(Code.INTERNAL, "an internal error; the server's log has the traceback", detail=detail)
