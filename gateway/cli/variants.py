"""Which variant of a repository is pulled: a menu for people, the best known one for scripts."""

from __future__ import annotations

import sys
from typing import Any, Final
from urllib.parse import quote

import click

from gateway.cli import screen
from gateway.cli.exits import Trouble
from gateway.cli.server import Server

PATIENCE: Final = 60.0
"""Seconds for the server, which asks the hub, which may be busy."""


def choose(server: Server, checkpoint: str) -> str:
    """Return the checkpoint with the variant that is wanted; one that has a variant is wanted as it is.

    Where nobody sits at the terminal the first variant is taken, and said.
    """
    repo, colon, _ = checkpoint.removeprefix("hf:").partition(":")
    if colon:
        return checkpoint
    said = server.call("GET", f"/v1/pull/variants?checkpoint={quote(repo, safe='/')}", seconds=PATIENCE)
    if not said["variants"]:
        raise Trouble(f"{repo} has no GGUF model")
    return f"{repo}:{_pick(repo, said['variants'])}"


def _pick(repo: str, variants: list[dict[str, Any]]) -> str:
    names = [str(variant["name"]) for variant in variants]
    if not sys.stdin.isatty():
        others = f" (also: {', '.join(map(screen.plain, names[1:]))})" if len(names) > 1 else ""
        click.echo(f"Taking {screen.plain(names[0])} of {repo}{others}.", err=True)
        return names[0]
    click.echo(repo, err=True)
    width = max(map(len, names))
    for number, variant in enumerate(variants, 1):
        parts = f"  {len(variant['files'])} files" if len(variant["files"]) > 1 else ""
        name = screen.plain(str(variant["name"])).ljust(width)
        click.echo(f"  {number}  {name}  {screen.size(variant['size_bytes'])}{parts}", err=True)
    click.echo(f"  {len(names) + 1}  Other: a quantization or a file of the repository", err=True)
    return _answered(names)


def _answered(names: list[str]) -> str:
    while True:
        answer = str(click.prompt("Which one", default="1", err=True)).strip()
        if not answer.isdecimal():
            return answer
        if 1 <= int(answer) <= len(names):
            return names[int(answer) - 1]
        if int(answer) == len(names) + 1:
            return str(click.prompt("Quantization or file", err=True)).strip()
        click.echo(f"1 to {len(names) + 1}, please, or a name.", err=True)
