"""Lays out an overview on a screen of any size: a head and a foot that stay, and a body that scrolls. Pure."""

from __future__ import annotations

import enum
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from rich.cells import cell_len, set_cell_size

from gateway.cli.live.sections import ORDERS, Order, Section, headline, sections_of
from gateway.cli.live.words import NO_MODEL
from gateway.cli.output import plain
from gateway.overview.view import Overview


class Style(enum.Enum):
    """How a part of a line looks."""

    NORMAL = enum.auto()
    BOLD = enum.auto()
    DIM = enum.auto()
    REVERSE = enum.auto()
    GOOD = enum.auto()
    BAD = enum.auto()


Line = tuple[tuple[str, Style], ...]
"""The parts of a line."""

_STATES: Final = {
    "ready": Style.GOOD,
    "failed": Style.BAD,
    "engine restarts": Style.BAD,
    "lost": Style.BAD,
    "not loaded": Style.DIM,
}
_GAP: Final = 2
"""Cells between two columns."""
_LEAST_WIDTH: Final = 8
"""Cells that a column of text keeps, however narrow the screen is."""
_HEAD_LINES: Final = 8
"""Most lines above the tables, on a screen that is high enough."""
_ELLIPSIS: Final = "…"


class ScreenContent(NamedTuple):
    """What the screen shows, except its size."""

    overview: Overview
    now: float
    """The server's time."""
    url: str
    order: Order = ORDERS[0]
    scroll: int = 0
    """Lines of the body above the screen."""
    notice: str = ""
    """What the viewer should know about the connection; it stands in the place of the keys."""


class ScreenLayout(NamedTuple):
    """A screen full of lines, and how far its body can be scrolled."""

    lines: list[Line]
    scroll: int
    max_scroll: int
    body_height: int


def lay_out(view: ScreenContent, width: int, height: int) -> ScreenLayout:
    """Return at most ``height`` lines of at most ``width`` cells."""
    head = list(_head(view, width))[: max(0, min(_HEAD_LINES, height // 3))]
    body = list(_body(view, width))
    left = max(0, height - len(head) - 1)
    max_scroll = max(0, len(body) - left)
    scroll = max(0, min(view.scroll, max_scroll))
    shown = [line() for line in body[scroll : scroll + left]]
    blank: list[Line] = [()] * (left - len(shown))
    lines = [*head, *shown, *blank, _foot(view, max_scroll - scroll, width)]
    return ScreenLayout(lines[:height], scroll, max_scroll, left)


def text_of(line: Line) -> str:
    """Return a line without its styles."""
    return "".join(text for text, _ in line)


def _head(view: ScreenContent, width: int) -> Iterator[Line]:
    for number, line in enumerate(headline(view.overview, view.url, view.now)):
        style = Style.NORMAL if number else Style.BOLD
        style = Style.BAD if line.startswith("Problem: ") else style
        for piece in textwrap.wrap(plain(line), max(width, _LEAST_WIDTH), subsequent_indent="  "):
            yield _whole(piece, style, width)


def _body(view: ScreenContent, width: int) -> Iterator[Callable[[], Line]]:
    """Yield what makes each line: only those on the screen are made."""
    for section in sections_of(view.overview, view.now, view.order, width):
        yield tuple
        if section.title:
            yield partial(_whole, section.title, Style.BOLD, width)
        yield from _table(section, width)
        if not section.rows:
            yield partial(_whole, NO_MODEL, Style.NORMAL, width)


def _whole(text: str, style: Style, width: int) -> Line:
    return ((_cut(text, width), style),)


def _table(section: Section, width: int) -> Iterator[Callable[[], Line]]:
    rows = [[plain(cell).replace("\n", " ") for cell in row] for row in section.rows]
    widths = column_widths([section.head, *rows], section.numbers, width)
    yield partial(_whole, _joined(section.head, widths, section.numbers), Style.DIM, width)
    indent = " " * (sum(widths[:-1]) + _GAP * (len(widths) - 1))
    for row in rows:
        last, *others = (textwrap.wrap(row[-1], widths[-1]) if section.wraps else row[-1:]) or [""]
        yield partial(_row, [*row[:-1], last], widths, section, width)
        for other in others:
            yield partial(_whole, indent + other, Style.NORMAL, width)


def _row(row: Sequence[str], widths: Sequence[int], section: Section, width: int) -> Line:
    text = _cut(_joined(row, widths, section.numbers), width)
    style = _STATES.get(row[1])
    if style is None or len(row[1]) > widths[1] or cell_len(text) < widths[0] + _GAP + len(row[1]):
        return _whole(text, Style.NORMAL, width)
    before = set_cell_size(text, widths[0] + _GAP)
    return (before, Style.NORMAL), (row[1], style), (text[len(before) + len(row[1]) :], Style.NORMAL)


def column_widths(rows: Sequence[Sequence[str]], numbers: frozenset[int], width: int) -> list[int]:
    """Return the width of each column so that a row fits, if it can: the widest columns of text give way first."""
    widths = [max(cell_len(row[column]) for row in rows) for column in range(len(rows[0]))]
    excess = sum(widths) + _GAP * (len(widths) - 1) - width
    texts = [column for column in range(len(widths)) if column not in numbers]
    while excess > 0:
        widest = max(texts, key=lambda column: widths[column])
        if widths[widest] <= _LEAST_WIDTH:
            break
        widths[widest] -= 1
        excess -= 1
    return widths


def _joined(cells: Sequence[str], widths: Sequence[int], numbers: frozenset[int]) -> str:
    return (
        (" " * _GAP)
        .join(
            cell.rjust(width) if number in numbers else set_cell_size(_cut(cell, width), width)
            for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        .rstrip()
    )


def _cut(text: str, width: int) -> str:
    return text if cell_len(text) <= width else set_cell_size(text, max(0, width - 1)) + _ELLIPSIS[:width]


def _foot(view: ScreenContent, below: int, width: int) -> Line:
    if view.notice:
        return _whole(view.notice, Style.REVERSE, width)
    more = f" | {below} more lines below" if below else ""
    keys = " ".join(f"{order.key}:{order.name}" for order in ORDERS)
    return _whole(f"q: quit{more} | sorted by {view.order.name}; {keys}", Style.DIM, width)
