"""A client that follows the overview of a server, and applies each patch as a page does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

from tests.support.clients.http_client import RawHttpClient
from tests.support.clients.http_exchange import SseEvent
from tests.support.merge_patch import patched


class OverviewFollower:
    """One stream, and the state that it has told so far. Use it as a context manager."""

    def __init__(self, client: RawHttpClient, headers: Mapping[str, str] | None = None) -> None:
        self.exchange = client.start("GET", "/internal/overview/stream", headers=headers)
        self.state: Any = {}
        self.events: list[SseEvent] = []
        """Those that were applied."""

    def _apply(self) -> None:
        for event in self.exchange.events[len(self.events) :]:
            self.events.append(event)
            if event.name == "overview":
                self.state = event.json()
            elif event.name == "patch":
                self.state = patched(self.state, event.json())

    def until(self, condition: Callable[[Any], object]) -> Any:
        """Follow until the state fulfils a condition, and return what that returns; fails if the stream ends before."""

        def reached(_: object) -> object:
            self._apply()
            return bool(self.state) and condition(self.state)

        self.exchange.until(reached)
        return condition(self.state)

    def next_second(self) -> Any:
        """Return the state of the next patch."""
        before = self.state["time"]
        self.until(lambda state: state["time"] != before)
        return self.state

    def finish(self) -> SseEvent:
        """Follow to the end of the stream, and return the last event."""
        self.exchange.finish()
        self._apply()
        return self.events[-1]

    def named(self, name: str) -> list[Any]:
        """Return the data of the events of one kind."""
        return [event.json() for event in self.events if event.name == name]

    def __enter__(self) -> Self:
        self.until(lambda state: state)
        return self

    def __exit__(self, *_: object) -> None:
        self.exchange.hang_up()
