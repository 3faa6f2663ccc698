"""Errors in callbacks of gevent's hub: one line of the log each, where gevent would write a traceback to stderr."""

from __future__ import annotations

import itertools
from types import TracebackType
from typing import Any

from protocol.runtime import logs


def install_error_handler(hub: Any) -> None:
    """Let ``hub`` log what its callbacks and greenlets raise; it goes on after it, as it would anyway."""
    count = itertools.count(1)

    def print_exception(
        _context: object, kind: type[BaseException], problem: BaseException, trace: TracebackType | None
    ) -> None:
        logs.get_logger().error("internal error", errors=next(count), exc_info=(kind, problem, trace))

    hub.print_exception = print_exception
