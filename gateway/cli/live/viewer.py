"""`lemonbus top` on a terminal: shows each new state of the server, and obeys the keys."""

from __future__ import annotations

from typing import Final, NamedTuple

from gateway.cli.api_client import ApiClient
from gateway.cli.live.feed import Feed, State
from gateway.cli.live.layout import ScreenContent, ScreenLayout, lay_out
from gateway.cli.live.sections import ORDERS, Order
from gateway.cli.live.terminal import TerminalScreen
from gateway.cli.output import duration
from gateway.overview.view import Overview

_REDRAW_S: Final = 1.0
"""Seconds after which ages are shown again, even if nothing is heard."""
_SILENT_S: Final = 4.0
"""Seconds without a message after which the page says that it is old."""
_BY_KEY: Final = {order.key: order for order in ORDERS}


class Viewed(NamedTuple):
    """What the viewer has chosen to see."""

    order: Order = ORDERS[0]
    scroll: int = 0


def watch(server: ApiClient, state: State) -> None:
    """Show the server until ``q`` is typed; raises ``CommandError`` if it refuses to go on. ``state``: the first one to show."""
    feed = Feed(server, state)
    position = Viewed()
    with TerminalScreen() as terminal:
        feed.start(terminal.wake)
        while feed.failure is None:
            page = _draw(terminal, server, feed, position)
            position = position._replace(scroll=page.scroll)
            try:
                keys = terminal.wait(_REDRAW_S)
            except EOFError:
                return
            for key in keys:
                if key in ("q", "Q"):
                    return
                position = moved(position, key, page)
    raise feed.failure


def _draw(terminal: TerminalScreen, server: ApiClient, feed: Feed, position: Viewed) -> ScreenLayout:
    known, age = feed.state, feed.age
    overview: Overview = server.decoded(known.fields, Overview)
    width, height = terminal.size
    notice = notice_of(known.problem, age)
    page = lay_out(ScreenContent(overview, overview.time + age, server.url, *position, notice), width, height)
    terminal.draw(page.lines)
    return page


def notice_of(problem: str, age: float) -> str:
    """Return what to say about the connection. ``age``: seconds since the server was heard last."""
    if problem:
        return f"{problem}; waiting for the server, as of {duration(age)} ago; q: quit"
    return f"the server has sent nothing for {duration(age)}; q: quit" if age > _SILENT_S else ""


def moved(position: Viewed, key: str, page: ScreenLayout) -> Viewed:
    """Return the position after a key."""
    if key in _BY_KEY:
        return Viewed(_BY_KEY[key])
    steps = {
        "up": -1,
        "k": -1,
        "down": 1,
        "j": 1,
        "page up": -page.body_height,
        "page down": page.body_height,
        " ": page.body_height,
        "home": -page.max_scroll,
        "end": page.max_scroll,
    }
    scroll = max(0, min(page.max_scroll, position.scroll + steps.get(key, 0)))
    return position._replace(scroll=scroll)
