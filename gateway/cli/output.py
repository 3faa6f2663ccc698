"""Output of the commands: tables, sizes, JSON, and text of models and logs."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from protocol.runtime.control_characters import escape_in_json
from protocol.runtime.journal_priorities import PRIORITIES, stderr_is_journal

if TYPE_CHECKING:
    from gateway.api.common.node_entries import NodeEntry
    from gateway.cli.exit_codes import CommandError
    from protocol.messages.disk_usage import DiskItem
    from protocol.messages.system_info import BackendStatus

AS_JSON: Final = "lemonbus --json"
"""Key in the ``meta`` of a command's context if it was asked for JSON."""
_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Control characters, and those that reverse the order of other text. Marks that languages need stay."""


def is_terminal() -> bool:
    """Return whether standard output is a terminal."""
    return sys.stdout.isatty()


def plain(text: str) -> str:
    """Return the text without control characters: text of models and logs must not control the terminal."""
    return _CONTROL.sub("", text)


def print_error(text: str) -> None:
    """Print on stderr why a command failed.

    In systemd's journal (``ExecReload=``), it gets the priority of an error.
    """
    priority = PRIORITIES["error"].decode() if stderr_is_journal() else ""
    click.echo("\n".join(priority + line for line in f"lemonbus: {plain(text)}".split("\n")), err=True)


def print_failure(error: CommandError, context: click.Context) -> None:
    """Print on stderr why a command failed: as text or, with ``--json``, as one line with the fields of the server's error."""
    if AS_JSON not in context.meta:
        print_error(str(error))
        return
    status = {"status": error.status} if error.status else {}
    shown = {"error": {"message": str(error), **error.facts}, **status, "exit_code": error.exit_code}
    click.echo(json_text(shown), err=True)


def json_text(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON, with escapes for characters that change how text is shown."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=_fields)
    return escape_in_json(text.encode("utf-8", "replace")).decode()


def _fields(struct: Any) -> Any:
    import msgspec  # noqa: PLC0415 - a command that has a struct has imported it

    return msgspec.to_builtins(struct)


def print_json(value: Any) -> None:
    """Print one JSON value, or a struct as one: indented for a person, one line for a program."""
    click.echo(json_text(value, 2 if is_terminal() else None))


def table(head: Sequence[str], rows: Sequence[Sequence[object]], indent: str = "") -> None:
    """Print aligned columns. On a terminal, the last one is cut at the edge."""
    cells = [[plain(str(cell)).replace("\n", " ") for cell in row] for row in rows]
    widths = [max(len(line[column]) for line in [head, *cells]) for column in range(len(head))]
    edge = shutil.get_terminal_size().columns if is_terminal() else None
    for number, line in enumerate([head, *cells]):
        text = indent + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        click.secho(text[:edge], bold=number == 0)


def backend_columns(backend: BackendStatus) -> tuple[str, str, str, str]:
    """Return a backend's state, version, devices and note, for a table."""
    note = " ".join(filter(None, (backend.message, backend.action)))
    return backend.state, backend.version or "-", " ".join(backend.devices) or "-", note or "-"


def disk_table(items: Sequence[DiskItem]) -> None:
    """Print what is on the disk."""
    rows = [
        (
            size(item.size),
            size(item.shared) if item.shared else "-",
            item.kind.replace("_", " "),
            item.name,
            f"kept: {item.kept}" if item.kept else f"unused: {item.unused}" if item.unused else "-",
        )
        for item in items
    ]
    table(("SIZE", "SHARED", "WHAT", "NAME", "NOTE"), rows)


def node_table(nodes: Sequence[NodeEntry]) -> None:
    """Print the machines of a server."""
    rows = [
        (
            each.name,
            _node_state(each),
            duration(each.age_seconds),
            len(each.models) or "-",
            " ".join(each.devices) or "-",
            ", ".join(f"{place.name or place.place} {size(place.free_bytes)}" for place in each.memory) or "-",
            each.address or "-",
            " ".join(backend for backend in each.backends if _needs_installation(backend)) or "-",
        )
        for each in nodes
    ]
    table(("NODE", "STATE", "FOR", "MODELS", "DEVICES", "MEMORY FREE", "ADDRESS", "BACKENDS"), rows)


def _node_state(node: NodeEntry) -> str:
    if node.reason:
        return f"{node.state}: {node.reason}"
    return node.state + (", drained" if node.drained and node.state == "lost" else "")


def _needs_installation(backend: str) -> bool:
    """Return whether a backend is not one that each node has: these have the names of their recipes."""
    recipe, _, name = backend.partition(":")
    return recipe != name


def size(number: float) -> str:
    """Return a number of bytes in words: ``98 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if number >= 10 or unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def duration(seconds: float) -> str:
    """Return a number of seconds in words: ``3 h 12 min``."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"
