"""Exceptions in callbacks of gevent's hub: each is counted and logged; gevent would write them to stderr."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from gateway.internal_errors import INTERNAL_ERRORS


def install_error_handler(hub: Any) -> None:
    """Make ``hub`` log and count what its callbacks and greenlets raise. As usual, it goes on afterwards."""

    def print_exception(
        _context: object, _kind: type[BaseException], problem: BaseException, _trace: TracebackType | None
    ) -> None:
        INTERNAL_ERRORS.log(problem)

    hub.print_exception = print_exception
