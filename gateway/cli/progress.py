"""Progress of downloads and installations: bars on a terminal, lines in logs, JSON for programs; and the downloads that several commands start."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import click
import msgspec

from gateway.api.common.progress_events import EVENTS, CompleteEvent, ProgressEvent
from gateway.api.common.routes import Asked, Route
from gateway.api.lemonade.downloads import DownloadJob
from gateway.api.lemonade.model_files import LemonadePullRequest, pull_model
from gateway.api.openai.models import ModelsQuery, list_models
from gateway.cli import output
from gateway.cli.api_client import ApiClient, stream_error
from gateway.cli.exit_codes import CommandError


class ProgressDisplay(Protocol):
    """Shows one progress event."""

    def __call__(self, event: ProgressEvent, /) -> None: ...  # noqa: D102


def show_progress(
    server: ApiClient, route: Route[Asked, Any], request: Asked, as_json: bool, broken: str, begins: str = ""
) -> None:
    """Send a request that asks for a stream, and show its progress.

    ``broken``: the message for a stream that breaks. ``begins``: a line above the first progress, which a refusal does not have.
    """
    events = _events(server, route, request)
    first = next(events, None)
    if begins and first is not None and isinstance(first[1], ProgressEvent):
        click.echo(begins, err=True)
    with _progress(as_json) as show:
        for name, event in itertools.chain([first] if first is not None else [], events):
            if isinstance(event, ProgressEvent):
                show(event)
            elif as_json:
                click.echo(_as_json(name, event))
            if isinstance(event, CompleteEvent):
                return
    raise CommandError(broken)


def _events(
    server: ApiClient, route: Route[Asked, Any], request: Asked
) -> Iterator[tuple[str, ProgressEvent | CompleteEvent]]:
    for name, text in server.follow(route, request):
        data = json.loads(text)
        if error := stream_error(data):
            raise error
        if name in EVENTS:
            yield name, server.decoded(data, EVENTS[name])


def _as_json(name: str, event: ProgressEvent | CompleteEvent) -> str:
    return output.json_text({"event": name, **msgspec.to_builtins(event)})


def _progress(as_json: bool) -> AbstractContextManager[ProgressDisplay]:
    if as_json:
        return _lines()
    return _bars() if sys.stderr.isatty() else _tenth_lines()


@contextmanager
def _lines() -> Iterator[ProgressDisplay]:
    yield lambda event: click.echo(_as_json("progress", event))


@contextmanager
def _tenth_lines() -> Iterator[ProgressDisplay]:
    """For logs: a line for every tenth of a file."""
    shown: set[tuple[str, int]] = set()

    def show(event: ProgressEvent) -> None:
        step = (event.file, event.percent // 10)
        if step not in shown:
            shown.add(step)
            position = f"{event.file_index}/{event.total_files}"
            share = f"{event.percent} % of {output.size(event.bytes_total)}" if event.bytes_total else "begins"
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

        def show(event: ProgressEvent) -> None:
            name = output.plain(event.file)
            if name not in tasks:
                tasks[name] = bars.add_task(name)
            bars.update(tasks[name], completed=event.bytes_downloaded, total=event.bytes_total or None)

        yield show


def downloaded(job: DownloadJob) -> str:
    """Return how far a download has come, in words."""
    if not job.total_files:
        return "nothing downloaded"
    position = f"{output.plain(job.file)} ({job.file_index}/{job.total_files})"
    return f"{output.size(job.bytes_downloaded)} of {output.size(job.bytes_total)}, {job.percent} % of {position}"


def ensure_downloaded(server: ApiClient, model: str) -> None:
    """Download a known model that is not downloaded yet, and show the progress. Other cases are left to the server.

    Raises the server's refusal, for example if no source has the model's files.
    """
    try:
        known = server.ask(list_models, ModelsQuery(show_all=True)).data
    except CommandError:
        return
    if any(entry.id == model and not entry.downloaded for entry in known):
        begins = f"Downloading {output.plain(model)} first."
        download(server, LemonadePullRequest(model_name=model), as_json=False, begins=begins)


def download(server: ApiClient, request: LemonadePullRequest, as_json: bool, begins: str = "") -> None:
    """Download a model, after registering it if the request describes a new one, and show the progress.

    ``begins``: see :func:`show_progress`.
    """
    broken = f"the download of {request.model_name} broke off; pull again to continue"
    request.stream = True
    show_progress(server, pull_model, request, as_json, broken, begins)
