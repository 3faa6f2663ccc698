"""``lemonbus say``: reads a text aloud, into a file or a player."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import click

from gateway.cli.api_client import ApiClient
from gateway.cli.options import json_option, model_argument, server_option
from gateway.cli.output import print_json
from gateway.cli.progress import ensure_downloaded
from protocol.wire.speech import DEFAULT_FORMAT, MAX_SPEED, MEDIA_TYPES, MIN_SPEED


@click.command("say", short_help="Read a text aloud into a file.")
@model_argument()
@click.argument("text", required=False)
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="File to write.")
@click.option("--voice", metavar="NAME", help="A voice of the model; several are mixed: a+b.")
@click.option("--speed", type=click.FloatRange(MIN_SPEED, MAX_SPEED), help="1 is the usual speed.")
@click.option(
    "--format",
    "form",
    type=click.Choice(sorted(MEDIA_TYPES)),
    help=f"Without it: the end of the file's name, or {DEFAULT_FORMAT}.",
)
@json_option("one JSON object about the file")
@server_option
def command(
    model: str,
    text: str | None,
    output: Path | None,
    voice: str | None,
    speed: float | None,
    form: str | None,
    as_json: bool,
    server: ApiClient,
) -> None:
    """Let MODEL read TEXT aloud.

    Without TEXT, or with -, the text is read from standard input. Without -o, the sound is written to standard output, for
    a player. A file whose sound is not whole is removed.
    """
    if output is None and sys.stdout.isatty():
        raise click.UsageError("Name a file with -o, or pipe the sound into a player.")
    if output is None and as_json:
        raise click.UsageError("--json needs -o: without it, standard output is the sound.")
    spoken = sys.stdin.read() if text in (None, "-") else text
    if not spoken or not spoken.strip():
        raise click.UsageError("The text is empty.")
    ensure_downloaded(server, model)
    by_name = output.suffix.lower().removeprefix(".") if output else ""
    fields = {
        "model": model,
        "input": spoken,
        "voice": voice,
        "speed": speed,
        "response_format": form or (by_name if by_name in MEDIA_TYPES else DEFAULT_FORMAT),
    }
    request = {name: value for name, value in fields.items() if value is not None}
    with closing(server.download("/v1/audio/speech", request)) as pieces:
        first = next(pieces, b"")  # an existing file is kept if the server refuses
        if output is None:
            _write(sys.stdout.buffer, first, pieces)
            return
        try:
            with output.open("wb") as file:
                _write(file, first, pieces)
        except BaseException:
            output.unlink(missing_ok=True)
            raise
    if as_json:
        written = {"file": str(output), "bytes": output.stat().st_size}
        print_json({"model": model, **written, "format": request["response_format"]})


def _write(file: BinaryIO, first: bytes, pieces: Iterator[bytes]) -> None:
    for piece in chain([first], pieces):
        file.write(piece)
        file.flush()
