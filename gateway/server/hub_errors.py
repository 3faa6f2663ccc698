"""Exceptions in callbacks of gevent's hub: counted, and a line of the log each; gevent would write to stderr."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from protocol.runtime import logs


def install_error_handler(hub: Any, count_error: Callable[[], int]) -> None:
    """Let ``hub`` log what its callbacks and greenlets raise; it goes on after it, as it would anyway.

    ``count_error`` counts one more, and returns how many there were.
    """

    def print_exception(
        _context: object, kind: type[BaseException], problem: BaseException, trace: TracebackType | None
    ) -> None:
        logs.get_logger().error("internal error", errors=count_error(), exc_info=(kind, problem, trace))

    hub.print_exception = print_exception
