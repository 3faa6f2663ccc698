"""``lemonbus bench``: how fast a model answers, with one stream and with many at the same time."""

from __future__ import annotations

import time
from typing import Any, Final

import click
from click.exceptions import Exit

from gateway.api.common.routes import Nothing
from gateway.api.lemonade.health import show_health
from gateway.api.lemonade.load import LemonadeLoadRequest, load_model
from gateway.api.openai.models import ModelId, show_model
from gateway.api.operator.configuration import ConfigurationQuery, show_configuration, show_settings
from gateway.cli import output
from gateway.cli.api_client import ApiClient
from gateway.cli.benchmark.measurement import MeasuredRequest, measure, measure_streams
from gateway.cli.benchmark.prompts import PromptLength, measured_length, prompt
from gateway.cli.benchmark.report import BenchReport, LevelReport, level_notes, level_report, print_table
from gateway.cli.exit_codes import FAILED, FORBIDDEN, INTERRUPTED, CommandError
from gateway.cli.options import json_option, model_argument, server_option
from gateway.cli.progress import ensure_downloaded
from protocol.models.recipes import ModelOrigin

_MOST_STREAMS: Final = 256
_SHORT: Final = 16
_LONGER: Final = 64
"""Words of the two prompts that show how many tokens a word has."""
_FEW: Final = 16
"""Tokens of the answers to these two, of which only the first one matters."""


class _Streams(click.ParamType[list[int]]):
    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        if isinstance(value, list):
            return value
        try:
            numbers = [int(word) for word in str(value).split(",")]
        except ValueError:
            numbers = []
        if not numbers or not all(1 <= number <= _MOST_STREAMS for number in numbers):
            self.fail(f"expected numbers from 1 to {_MOST_STREAMS} with commas, such as 1,8,32", param, ctx)
        return numbers


@click.command("bench", short_help="Measure how fast a model answers.")
@model_argument()
@click.option("--streams", type=_Streams(), default="1,8,32", show_default=True, help="How many requests run at once.")
@click.option(
    "--requests",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="Requests with each number of streams, at least one a stream.",
)
@click.option(
    "--prompt-tokens", type=click.IntRange(min=1), default=512, show_default=True, help="About how long prompts are."
)
@click.option("--max-tokens", type=click.IntRange(min=2), default=128, show_default=True, help="How long answers are.")
@json_option("what was measured")
@server_option
def command(
    model: str,
    streams: list[int],
    requests: int,
    prompt_tokens: int,
    max_tokens: int,
    as_json: bool,
    server: ApiClient,
) -> None:
    """Load MODEL, and measure its answers over HTTP, as any client sees them.

    Each prompt is new, so that no cache helps. The table leaves out the load, the first request after it and a second one.
    Ctrl-C ends all requests and shows what was measured so far.
    """
    ensure_downloaded(server, model)
    bench = _Bench(server, model, max_tokens)
    try:
        bench.prepare(prompt_tokens)
        for number in streams:
            bench.measure_level(number, requests)
    except KeyboardInterrupt:
        bench.report.interrupted = True
    report = bench.report
    if as_json:
        output.print_json(report)
    else:
        _print(report)
    if report.interrupted:
        raise Exit(INTERRUPTED)
    if any(level.failed or level.skipped for level in report.levels):
        raise Exit(FAILED)


class _Bench:
    def __init__(self, server: ApiClient, model: str, max_tokens: int) -> None:
        self._server = server
        found = server.ask(show_model, ModelId(model))
        self._request: dict[str, Any] = {"model": model, "max_tokens": max_tokens, "temperature": 0}
        if found.origin is ModelOrigin.FILES:  # our engines read or ignore it; answers of one length can be compared
            self._request["ignore_eos"] = True
        self._words = 0
        self._queue = 0
        self.report = BenchReport(found.id, server.url, found.recipe, None, None, None, None, [], [])

    def prepare(self, prompt_tokens: int) -> None:
        """Load the model and send the first two requests; raises ``CommandError`` if one fails."""
        report = self.report
        self._load()
        self._read_limits()
        self._check_length(prompt_tokens)
        cold = report.first_request = self._first(_SHORT)
        warm = self._first(_LONGER)
        length: PromptLength = measured_length((_SHORT, cold.prompt_tokens), (_LONGER, warm.prompt_tokens))
        self._words = length.words(prompt_tokens)

    def _load(self) -> None:
        report = self.report
        health = self._server.ask(show_health, Nothing()).lemonbus
        if health.granted or health.queued:
            report.notes.append(
                f"When this began, the server had {health.granted} other requests at work and {health.queued} waiting."
            )
        loaded = any(each.model_name == report.model and each.state == "ready" for each in health.models)
        click.echo(f"Loading {output.plain(report.model)}." if not loaded else "The model is loaded.", err=True)
        began = time.monotonic()
        try:
            answer = self._server.ask(load_model, LemonadeLoadRequest(model_name=report.model), None)
        except CommandError as problem:
            if problem.exit_code != FORBIDDEN:
                raise
            report.notes.append("This key may not load models, so the first request includes the load.")
            return
        report.load_seconds = None if loaded else round(time.monotonic() - began, 3)
        report.context = answer.context or None

    def _read_limits(self) -> None:
        """Find out the slots and the queue of the model. What the key may not know stays unknown."""
        report = self.report
        models = self._server.ask(show_health, Nothing()).lemonbus.models
        report.slots = next((each.slots for each in models if each.model_name == report.model), 0) or None
        try:
            of_model = self._server.ask(show_configuration, ConfigurationQuery(report.model)).settings
            own = next((each.value for each in of_model if each.name == "queue"), None)
            limit = own or self._server.ask(show_settings, Nothing()).settings["queue_requests"].value
        except CommandError as problem:
            if problem.exit_code != FORBIDDEN:
                raise
            return
        self._queue = limit if isinstance(limit, int) else 0

    def _check_length(self, prompt_tokens: int) -> None:
        context, wanted = self.report.context, prompt_tokens + self._request["max_tokens"]
        if context and wanted > context:
            raise click.UsageError(
                f"A prompt of {prompt_tokens} tokens and an answer of {self._request['max_tokens']} do not fit into the"
                f" context of {context}."
            )

    def _first(self, words: int) -> MeasuredRequest:
        measured = self._send(words, max_tokens=min(_FEW, self._request["max_tokens"]))
        if measured.error:
            raise CommandError(measured.error)
        return measured

    def _send(self, words: int, **more: Any) -> MeasuredRequest:
        messages = [{"role": "user", "content": prompt(words)}]
        return measure(self._server, {**self._request, "messages": messages, **more})

    def measure_level(self, streams: int, requests: int) -> None:
        """Measure with this number of streams, unless the server would have to refuse some of their requests."""
        number = max(streams, requests)
        slots = self.report.slots or 0
        if self._queue and streams > slots + self._queue:
            reason = f"the server lets {self._queue} requests wait for the model (`queue`) beside its {slots} slots"
            level = LevelReport(streams, skipped=reason)
        else:
            click.echo(f"{streams} stream{'s' * (streams > 1)}: {number} requests.", err=True)
            level = level_report(measure_streams(streams, number, lambda: self._send(self._words)))
        self.report.levels.append(level)
        self.report.notes += level_notes(level, slots)


def _print(report: BenchReport) -> None:
    facts = [f"{report.slots} slots"] if report.slots else []
    facts += [f"{report.context} tokens of context"] if report.context else []
    click.secho(f"{output.plain(report.model)} at {report.url}: {', '.join([report.recipe, *facts])}", bold=True)
    if report.load_seconds is not None:
        click.echo(f"Load: {report.load_seconds:.2f} s")
    if report.first_request is not None:
        first = report.first_request
        click.echo(
            f"First request: {first.first_token_s:.3f} s to the first token, with a prompt of {first.prompt_tokens} tokens"
        )
    if report.levels:
        click.echo()
        print_table(report.levels)
    for note in report.notes:
        click.echo(output.plain(note), err=True)
    if report.interrupted:
        click.echo("Interrupted: all requests were ended.", err=True)
