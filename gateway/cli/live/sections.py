"""What is shown of an overview, as tables: models, who waits, requests, deaths, downloads. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple

from gateway.cli.live import words
from gateway.cli.output import duration, size
from gateway.overview.view import Overview
from protocol.messages.model_overview import ModelOverview
from protocol.messages.overview import NodeOverview, RequestOverview

NONE: Final = "-"
ENDED_SHOWN: Final = 10
ROOMY: Final = 1000
"""A width at which every column is shown."""


class Order(NamedTuple):
    """An order of the models."""

    key: str
    """The key on the keyboard."""
    name: str
    rank: Callable[[ModelOverview, float], float]
    """The lowest is first."""


ORDERS: Final = (
    Order("a", "attention", words.attention),
    Order("w", "waiting", lambda model, _now: -model.waiting),
    Order("r", "running", lambda model, _now: -model.running),
    Order("t", "tokens/s", lambda model, _now: -model.tokens_per_second),
    Order("f", "first token", lambda model, _now: -model.first_token_p50),
    Order("m", "memory", lambda model, _now: -model.memory),
    Order("u", "last use", lambda model, _now: -model.last_use),
    Order("n", "name", lambda _model, _now: 0),
)
"""Ways to sort models; equal ones are sorted by their names."""


class Section(NamedTuple):
    """A table with a title."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: frozenset[int]
    """Columns that are aligned on their right."""
    wraps: bool
    """Whether long texts of the last column go on in the next line."""


class _Column(NamedTuple):
    """A column of a table whose rows are made of items, at a time."""

    title: str
    text: Callable[[Any, float], str]
    least_width: int = 0
    """Width of the screen from which on it is shown."""
    is_number: bool = False
    wraps: bool = False


_MODELS: Final = (
    _Column("MODEL", lambda item, _now: item[0] + (" *" if item[1].pinned else "")),
    _Column("STATE", lambda item, now: words.state_of(item[1], now)),
    _Column("RUN", lambda item, _now: f"{item[1].running}/{item[1].slots}" if item[1].slots else NONE, 0, True),
    _Column("WAIT", lambda item, _now: str(item[1].waiting or NONE), 0, True),
    _Column("TOK/S", lambda item, _now: _decimal(item[1].tokens_per_second), 0, True),
    _Column("1ST TOKEN", lambda item, _now: _seconds(item[1].first_token_p50), 80, True),
    _Column("MEMORY", lambda item, _now: size(item[1].memory) if item[1].memory else NONE, 70, True),
    _Column("CONTEXT", lambda item, _now: str(item[1].context or NONE), 120, True),
    _Column("DEVICE", lambda item, _now: item[1].device or NONE, 110),
    _Column("USE", lambda item, now: words.use_of(item[1], now) or NONE, 95),
)
_NODE_OF_MODEL: Final = _Column("NODE", lambda item, _now: item[1].node or NONE)
_REPLICAS: Final = (
    _Column("MODEL", lambda item, _now: item[0]),
    _Column("REPLICA", lambda item, _now: str(item[1].number), 0, True),
    _Column("STATE", lambda item, _now: item[1].state),
    _Column("NODE", lambda item, _now: item[1].node or NONE, 80),
    _Column("RUN", lambda item, _now: f"{item[1].running}/{item[1].slots}" if item[1].slots else NONE, 0, True),
)
_NODES: Final = (
    _Column("NODE", lambda item, _now: item[0]),
    _Column("STATE", lambda item, _now: item[1].state),
    _Column("FOR", lambda item, now: duration(max(0.0, now - item[1].since)) if item[1].since else NONE, 0, True),
    _Column("MODELS", lambda item, _now: str(len(item[1].models) or NONE), 0, True),
    _Column("DEVICES", lambda item, _now: " ".join(item[1].devices) or NONE, 80),
    _Column("MEMORY FREE", lambda item, _now: _free(item[1]), wraps=True),
)
_PROBLEMS: Final = (
    _Column("MODEL", lambda item, _now: item[0]),
    _Column("WHY", lambda item, now: words.problem_of(item[1], now), wraps=True),
)
_DEATHS: Final = (
    _Column("MODEL", lambda item, _now: item[0]),
    _Column("DEATHS", lambda item, _now: str(item[1].deaths.count), 0, True),
    _Column(
        "LAST DEATH",
        lambda item, now: f"{_ago(item[1].deaths.last[0].at, now)}: {item[1].deaths.last[0].reason}",
        wraps=True,
    ),
)
_KEYS: Final = (
    _Column("KEY", lambda item, _now: item[0] or "without a key"),
    _Column("REQUESTS", lambda item, _now: str(sum(item[1].values())), 0, True),
    _Column("FOR", lambda item, _now: ", ".join(item[1]), wraps=True),
)
_REQUESTS: Final = (
    _Column("REQUEST", lambda each, _now: each.id, 100),
    _Column("KEY", lambda each, _now: each.key or NONE, 80),
    _Column("ENDPOINT", lambda each, _now: each.endpoint),
    _Column("MODEL", lambda each, _now: each.model),
    _Column("STATE", lambda each, _now: _state_of_request(each)),
    _Column("AGE", lambda each, now: duration(max(0.0, now - each.arrived_at)), 0, True),
    _Column("TOKENS", lambda each, _now: str(each.tokens or NONE), 0, True),
)
_ENDED: Final = (
    _Column("REQUEST", lambda each, _now: each.id, 100),
    _Column("ENDED", lambda each, now: _ago(each.ended_at, now)),
    _Column("KEY", lambda each, _now: each.key or NONE, 80),
    _Column("MODEL", lambda each, _now: each.model or NONE),
    _Column("WAITED", lambda each, _now: _seconds(each.queue_s), 95, True),
    _Column("1ST TOKEN", lambda each, _now: _seconds(each.first_token_s), 80, True),
    _Column("TOTAL", lambda each, _now: _seconds(each.total_s), 0, True),
    _Column("TOKENS", lambda each, _now: f"{each.prompt_tokens}+{each.output_tokens}", 70, True),
    _Column("RESULT", lambda each, _now: ": ".join(filter(None, (each.code, each.message))) or "complete", wraps=True),
)
_DOWNLOADS: Final = (
    _Column("MODEL", lambda item, _now: item[0]),
    _Column("STATE", lambda item, _now: item[1].state),
    _Column("FETCHED", lambda item, _now: f"{size(item[1].done)} of {size(item[1].total)}", 0, True),
    _Column("FILE", lambda item, _now: item[1].message or item[1].file or NONE),
)


def sections_of(overview: Overview, now: float, order: Order = ORDERS[0], width: int = ROOMY) -> list[Section]:
    """Return the tables that have rows, and first that of the models."""
    models = overview.models.items()
    by_order = sorted(models, key=lambda item: (order.rank(item[1], now), item[0]))
    slow = sorted(models, key=lambda item: (words.attention(item[1], now), item[0]))
    slow = [item for item in slow if words.problem_of(item[1], now)]
    died = [item for item in models if item[1].deaths is not None and now - _last_death(item[1]) < words.DAY_S]
    died.sort(key=lambda item: -_last_death(item[1]))
    ended = sorted(overview.ended.values(), key=lambda each: -each.ended_at)[:ENDED_SHOWN]
    in_flight, total = overview.requests.values(), overview.running + overview.waiting
    shown = f", {len(in_flight)} of {total} shown" if len(in_flight) < total else ""
    tables: tuple[tuple[str, Sequence[_Column], Collection[Any]], ...] = (
        ("", _MODELS if not overview.nodes else (*_MODELS[:2], _NODE_OF_MODEL, *_MODELS[2:]), by_order),
        ("Replicas", _REPLICAS, [(name, each) for name, model in by_order for each in model.replicas]),
        ("Nodes", _NODES, (overview.nodes or {}).items()),
        ("Slow or not loaded", _PROBLEMS, slow),
        ("Engines that died in the last 24 hours", _DEATHS, died),
        ("Who waits", _KEYS, _waiting_keys(overview)),
        (f"Requests in flight{shown}", _REQUESTS, in_flight),
        ("Downloads", _DOWNLOADS, overview.downloads.items()),
        ("Last requests that ended", _ENDED, ended),
    )
    return [_section(*table, now, width) for number, table in enumerate(tables) if table[2] or not number]


def _section(title: str, columns: Sequence[_Column], items: Iterable[Any], now: float, width: int) -> Section:
    shown = [column for column in columns if column.least_width <= width]
    rows = [[column.text(item, now) for column in shown] for item in items]
    numbers = frozenset(number for number, column in enumerate(shown) if column.is_number)
    return Section(title, [column.title for column in shown], rows, numbers, shown[-1].wraps)


def _last_death(model: ModelOverview) -> float:
    """Return when its engine died last, 0 if it never did."""
    return model.deaths.last[0].at if model.deaths is not None and model.deaths.last else 0.0


def _waiting_keys(overview: Overview) -> list[tuple[str, dict[str, int]]]:
    """Return for each key that waits how many requests wait for which model, the one with the most first."""
    found: dict[str, dict[str, int]] = {}
    for name, model in overview.models.items():
        for share in model.queue:
            found.setdefault(share.key, {})[name] = share.requests
    return sorted(found.items(), key=lambda item: (-sum(item[1].values()), item[0]))


def _state_of_request(request: RequestOverview) -> str:
    if request.state != "waiting":
        return request.state
    position = f", position {request.position}" if request.position else ""
    return f"waiting{position}" + (f", about {_seconds(request.wait_s)}" if request.wait_s else "")


def _ago(moment: float, now: float) -> str:
    return f"{duration(max(0.0, now - moment))} ago"


def _decimal(value: float) -> str:
    return NONE if not value else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _seconds(value: float) -> str:
    return NONE if not value else f"{value:.2f} s" if value < 10 else duration(value)


def headline(overview: Overview, url: str, now: float) -> list[str]:
    """Return the lines above the tables: the server, its memory, and its problems."""
    server = overview.server
    up = duration(max(0.0, now - server.started_at))
    first = f"lemonbus {server.version}: {server.state}, up {up}, {overview.running} running, {overview.waiting} waiting, at {url}"
    return [first, *filter(None, (_memory(overview),)), *(f"Problem: {text}" for text in server.problems)]


def _free(node: NodeOverview) -> str:
    return ", ".join(f"{each.name or place} {size(each.free)}" for place, each in node.memory.items()) or NONE


def _memory(overview: Overview) -> str:
    places: Iterable[str] = (
        f"{each.name or name} {size(each.free)} of {size(each.total)} free"
        + (f", {each.used_percent:.0f} % busy" if each.used_percent is not None else "")
        for name, each in overview.memory.items()
    )
    return "Memory: " + "; ".join(places) if overview.memory and not overview.nodes else ""
