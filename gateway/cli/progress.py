"""Progress of downloads and installations: bars on a terminal, lines in logs, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import click

from gateway.cli import output
from gateway.cli.api_client import ApiClient, stream_error
from gateway.cli.exit_codes import CommandError


class ProgressDisplay(Protocol):
    """Shows one progress event."""

    def __call__(self, event: dict[str, Any], /) -> None: ...  # noqa: D102


def show_progress(server: ApiClient, path: str, body: dict[str, Any], as_json: bool, broken: str) -> None:
    """Send a request with ``stream`` and show its progress. ``broken``: the message for a stream that breaks."""
    with _progress(as_json) as show:
        for event, data in _events(server, path, {**body, "stream": True}):
            if event == "progress":
                show(data)
            elif as_json:
                click.echo(output.json_text({"event": event, **data}))
            if event == "complete":
                return
    raise CommandError(broken)


def _events(server: ApiClient, path: str, body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for event, text in server.stream(path, body):
        data = json.loads(text)
        if error := stream_error(data):
            raise error
        yield event, data


def _progress(as_json: bool) -> AbstractContextManager[ProgressDisplay]:
    if as_json:
        return _lines()
    return _bars() if sys.stderr.isatty() else _tenth_lines()


@contextmanager
def _lines() -> Iterator[ProgressDisplay]:
    yield lambda event: click.echo(output.json_text({"event": "progress", **event}))


@contextmanager
def _tenth_lines() -> Iterator[ProgressDisplay]:
    """For logs: a line for every tenth of a file."""
    shown: set[tuple[str, int]] = set()

    def show(event: dict[str, Any]) -> None:
        step = (str(event["file"]), int(event["percent"]) // 10)
        if step not in shown:
            shown.add(step)
            position = f"{event['file_index']}/{event['total_files']}"
            total = event["bytes_total"]
            share = f"{event['percent']} % of {output.size(total)}" if total else "begins"
            click.echo(f"{output.plain(step[0])} ({position}) {share}", err=True)

    yield show


@contextmanager
def _bars() -> Iterator[ProgressDisplay]:
    """For a terminal: a bar for every file."""
    from rich import progress  # noqa: PLC0415 - slow to import
    from rich.console import Console  # noqa: PLC0415

    columns = (
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True)) as bars:
        tasks: dict[str, progress.TaskID] = {}

        def show(event: dict[str, Any]) -> None:
            name = output.plain(str(event["file"]))
            if name not in tasks:
                tasks[name] = bars.add_task(name)
            bars.update(tasks[name], completed=event["bytes_downloaded"], total=event["bytes_total"] or None)

        yield show
