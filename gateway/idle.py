"""The wait for a connection's next request: bounded, and ended early when the process wants to leave."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import gevent


class Idle(gevent.Timeout):  # type: ignore[misc]
    """The wait for a connection's next request; :meth:`end` ends it early."""

    def __init__(self, seconds: float, waiting: set[Idle]) -> None:
        """Wait at most ``seconds``, and be found in ``waiting`` meanwhile."""
        super().__init__(seconds, exception=False)
        self._waiting = waiting
        self._greenlet: Any = None
        """Who waits; None before and after."""

    def __enter__(self) -> Self:
        self._greenlet = gevent.getcurrent()
        self._waiting.add(self)
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> Any:
        self._waiting.discard(self)
        self._greenlet = None
        return super().__exit__(kind, value, trace)

    def end(self) -> None:
        """End it now, unless the request comes first."""
        self._waiting.discard(self)
        gevent.get_hub().loop.run_callback(self._throw)

    def _throw(self) -> None:
        if self._greenlet is not None:
            self._greenlet.throw(self)
