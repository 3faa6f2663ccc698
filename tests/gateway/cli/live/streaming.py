"""The stream of a fake server, whose messages a test sends when it wants to."""

from __future__ import annotations

import json
import queue
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from tests.gateway.cli.live.overviews import event, fields
from tests.gateway.fake_server import FakeServer, Reply

OVERVIEW: Final = ("GET", "/internal/overview")
STREAM: Final = ("GET", "/internal/overview/stream")
_END: Final = ""


class OverviewStream:
    """One connection. It begins with an overview."""

    def __init__(self, **more: Any) -> None:
        self._messages: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.send("overview", fields(**more))

    def send(self, name: str, data: Any) -> None:
        self._messages.put(event(name, data))

    def end(self) -> None:
        """Break the connection."""
        self._messages.put(_END)

    def reply(self) -> Reply:
        return Reply(pieces=iter(self._messages.get, _END), cut=True)


@contextmanager
def streams(server: FakeServer, *replies: OverviewStream | Reply) -> Iterator[None]:
    """Answer connections with these, one after the other, and the last one again and again."""
    left = list(replies)

    def next_reply(_body: Any) -> Reply:
        found = left.pop(0) if len(left) > 1 else left[0]
        return found.reply() if isinstance(found, OverviewStream) else found

    server.replies[OVERVIEW] = Reply(json.loads(json.dumps(fields())))
    server.replies[STREAM] = next_reply
    try:
        yield
    finally:
        for each in replies:
            if isinstance(each, OverviewStream):
                each.end()
