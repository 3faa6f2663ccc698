"""The events that the source code logs, found in its calls of loggers: names, levels and fields, for a test of their document."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.source_code import FILES, name

_LEVELS: Final = {
    **{level: level for level in ("trace", "debug", "info", "warning", "error", "critical")},
    "exception": "error",
}
"""Method of a logger → the level of its lines."""


class Forwarder(NamedTuple):
    """A function of ours that logs the event which it is given.

    ``event``: its place in the arguments; ``level``: the level, or its place; ``file``: where it is private; ``default``: the event of a
    call without one.
    """

    event: int
    level: str | int
    file: str = ""
    default: str = ""


FORWARDERS: Final = {
    "LogDecision": Forwarder(1, 0),
    "log_batched": Forwarder(1, 0),
    "report_error": Forwarder(2, "error"),
    "INTERNAL_ERRORS.log": Forwarder(1, "error", default="internal error"),
    "_change": Forwarder(1, "info", "gateway/api/operator/keys.py"),
    "_let_go": Forwarder(3, "info", "supervisor/scheduler/replicas/replication.py"),
}
FORWARDING_FILES: Final = frozenset(
    {
        *(each.file for each in FORWARDERS.values() if each.file),
        "gateway/internal_errors.py",
        "gateway/server/gunicorn_log.py",
        "protocol/runtime/loop.py",
        "supervisor/runtime/effect_executor.py",
        "workers/engine/output_reader.py",
    }
)
"""Where these functions log what they were given, and where the lines of other programs are logged, with their text as the event."""
_LOGS: Final = re.compile(r"\blogs?\b|_log\b|LogDecision|INTERNAL_ERRORS|report_error|_change\(")


@dataclass
class LoggedEvent:
    """What the calls that log an event say of it; a level or field that is only known at run time is missing."""

    files: set[str] = field(default_factory=set)
    levels: set[str] = field(default_factory=set)
    fields: set[str] = field(default_factory=set)


def logged_events() -> tuple[dict[str, LoggedEvent], list[str]]:
    """Return the events by name, and the calls whose event cannot be read from the source."""
    events: dict[str, LoggedEvent] = {}
    unreadable = []
    for path in FILES:
        text = path.read_text()
        if not _LOGS.search(text):
            continue
        for call, function in _calls(ast.parse(text)):
            found = _logged(call, function, name(path))
            if found is None:
                continue
            names, levels = found
            if not names and name(path) not in FORWARDING_FILES:
                unreadable.append(f"{name(path)}:{call.lineno}")
            for each in names:
                event = events.setdefault(each, LoggedEvent())
                event.files.add(name(path))
                event.levels |= levels
                event.fields |= _fields(call, function)
    return events, unreadable


def printed_lines(path: Path) -> set[str]:
    """Return what a file gives to ``print_line``, with ``…`` for what is only known at run time."""
    calls = [call for call, _ in _calls(ast.parse(path.read_text())) if ast.unparse(call.func).endswith("print_line")]
    texts = {_shape(call.args[0]) for call in calls if call.args}
    return {text for text in texts if text.strip("… ")}


def _calls(tree: ast.Module) -> Iterator[tuple[ast.Call, ast.AST]]:
    """Yield each call in a function, with the innermost function around it."""
    around: dict[ast.Call, ast.AST] = {}
    for function in ast.walk(tree):  # outer ones first
        if isinstance(function, ast.FunctionDef):
            around |= {node: function for node in ast.walk(function) if isinstance(node, ast.Call)}
    yield from around.items()


def _logged(call: ast.Call, function: ast.AST, file: str) -> tuple[set[str], set[str]] | None:
    """Return the events and levels of a call, as they are known; None if it logs nothing."""
    called = ast.unparse(call.func)
    for known, (event, level, only_in, default) in FORWARDERS.items():
        if f".{called}".endswith(f".{known}") and only_in in ("", file):
            names = _texts(call.args[event], function) if len(call.args) > event else {default}
            return names, {level} if isinstance(level, str) else _texts(call.args[level], function)
    levels = _log_methods(call.func, function)
    if levels is None or not call.args:
        return None
    return _texts(call.args[0], function), levels


def _log_methods(called: ast.expr, function: ast.AST) -> set[str] | None:
    """Return the levels of a logger's method, of ``getattr(log, level)`` none; None for anything else."""
    match called:
        case ast.Attribute(value=value, attr=attr) if attr in _LEVELS and _is_logger(value):
            return {_LEVELS[attr]}
        case ast.Call(func=ast.Name("getattr"), args=[value, *_]) if _is_logger(value):
            return set()
        case ast.IfExp(body=body, orelse=orelse):
            one, other = _log_methods(body, function), _log_methods(orelse, function)
            return None if one is None or other is None else one | other
        case ast.Name(id=variable):
            found = [_log_methods(value, function) for value in _assigned(variable, function)]
            return set().union(*(each for each in found if each)) if any(each is not None for each in found) else None
    return None


def _is_logger(value: ast.expr) -> bool:
    return re.search(r"(\b_?log|get_logger\(.*\))$", ast.unparse(value)) is not None


def _texts(value: ast.expr, function: ast.AST) -> set[str]:
    """Return the texts that an expression may be; none if that is only known at run time."""
    match value:
        case ast.Constant(str(text)):
            return {text}
        case ast.IfExp(body=body, orelse=orelse):
            return _texts(body, function) | _texts(orelse, function)
        case ast.Name(id=variable):
            return {text for each in _assigned(variable, function) for text in _texts(each, function)}
    return set()


def _fields(call: ast.Call, function: ast.AST) -> set[str]:
    found = {keyword.arg for keyword in call.keywords if keyword.arg}
    unpacked = [keyword.value for keyword in call.keywords if keyword.arg is None]
    if ast.unparse(call.func) == "LogDecision":
        unpacked += call.args[2:]
    for value in unpacked:
        found |= _keys(value, function)
    return {"exception" if each == "exc_info" else each for each in found}


def _keys(value: ast.expr, function: ast.AST) -> set[str]:
    """Return the keys of a mapping that the source shows."""
    match value:
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return {text for key, each in pairs for text in (_texts(key, function) if key else _keys(each, function))}
        case ast.IfExp(body=one, orelse=other) | ast.BinOp(left=one, right=other):
            return _keys(one, function) | _keys(other, function)
        case ast.Name(id=variable):
            return {key for each in _assigned(variable, function) for key in _keys(each, function)}
    return set()


def _assigned(variable: str, function: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=changed)], value=value) if changed == variable:
                yield value
            case ast.AnnAssign(target=ast.Name(id=changed), value=ast.expr() as value) if changed == variable:
                yield value


def _shape(value: ast.expr) -> str:
    match value:
        case ast.Constant(str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_shape(part) for part in parts)
    return "…"
