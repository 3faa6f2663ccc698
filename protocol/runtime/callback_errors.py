"""Tracebacks of callbacks that raise.

A callback that keeps raising is only logged now and then, so the disk does not fill up.
"""

from __future__ import annotations

from typing import Final

from protocol.runtime import logs

_REPEAT_INTERVAL_S: Final = 1.0


class CallbackErrorLog:
    """Logs exceptions, but at most one a second from each line of code."""

    def __init__(self) -> None:
        """Nothing was logged yet."""
        self._logged: dict[tuple[object, int], float] = {}
        """Where an exception was raised (code object and line) → when it was last logged."""

    def write(self, problem: Exception, count: int, now: float) -> None:
        """Log the traceback of the ``count``-th exception. ``now``: monotonic seconds."""
        trace = problem.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        raised_at = (trace.tb_frame.f_code, trace.tb_lineno) if trace is not None else (type(problem), 0)
        if now - self._logged.get(raised_at, -_REPEAT_INTERVAL_S) >= _REPEAT_INTERVAL_S:
            self._logged[raised_at] = now
            logs.get_logger().error("a callback raised an exception", errors=count, exc_info=problem)
