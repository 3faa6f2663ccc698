"""Downloads as the terminal shows them: bars for people, lines for logs and programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import click

from gateway.cli import screen
from gateway.cli.exits import Trouble
from gateway.cli.server import Server, in_band


class Show(Protocol):
    """Shows one progress event."""

    def __call__(self, event: dict[str, Any], /) -> None: ...  # noqa: D102


def ensure(server: Server, model: str) -> None:
    """Download a model that is known and not there yet, and show how far it is; all else is for the server to say."""
    try:
        known = server.call("GET", "/v1/models?show_all=true")["data"]
        absent = any(entry["id"] == model and not entry["downloaded"] for entry in known)
    except (Trouble, KeyError, TypeError):
        return
    if absent:
        click.echo(f"Downloading {screen.plain(model)} first.", err=True)
        fetch(server, model, as_json=False)


def fetch(server: Server, model: str, as_json: bool) -> None:
    """Download a model and show how far it is."""
    with _progress(as_json) as show:
        for event, data in _events(server, model):
            if event == "progress":
                show(data)
            elif as_json:
                click.echo(json.dumps({"event": event, **data}, ensure_ascii=False))
            if event == "complete":
                return
    raise Trouble(f"the download of {model} broke off; pull again to go on with it")


def _events(server: Server, model: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for event, text in server.stream("/v1/pull", {"model_name": model, "stream": True}):
        data = json.loads(text)
        if trouble := in_band(data):
            raise trouble
        yield event, data


def _progress(as_json: bool) -> AbstractContextManager[Show]:
    if as_json:
        return _lines()
    return _bars() if sys.stderr.isatty() else _tenths()


@contextmanager
def _lines() -> Iterator[Show]:
    yield lambda event: click.echo(json.dumps({"event": "progress", **event}, ensure_ascii=False))


@contextmanager
def _tenths() -> Iterator[Show]:
    """For logs: a line for every tenth of a file."""
    said: set[tuple[str, int]] = set()

    def show(event: dict[str, Any]) -> None:
        step = (str(event["file"]), int(event["percent"]) // 10)
        if step not in said:
            said.add(step)
            place = f"{event['file_index']}/{event['total_files']}"
            whole = screen.size(event["bytes_total"])
            click.echo(f"{screen.plain(step[0])} ({place}) {event['percent']} % of {whole}", err=True)

    yield show


@contextmanager
def _bars() -> Iterator[Show]:
    """For people: a bar for every file."""
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
            name = screen.plain(str(event["file"]))
            if name not in tasks:
                tasks[name] = bars.add_task(name)
            bars.update(tasks[name], completed=event["bytes_downloaded"], total=event["bytes_total"] or None)

        yield show
