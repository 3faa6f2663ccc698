"""Chooses the variant of a repository to download: with a menu on a terminal, the best known one in scripts."""

from __future__ import annotations

import sys
from typing import Final

import click

from gateway.api.lemonade.model_files import VariantsQuery, list_variants
from gateway.cli import output
from gateway.cli.api_client import ApiClient
from gateway.cli.exit_codes import CommandError
from protocol.messages.model_files import Variant

VARIANTS_TIMEOUT_S: Final = 60.0
"""The server asks the hub, which may be slow."""


def choose_variant(server: ApiClient, checkpoint: str) -> str:
    """Return the checkpoint with the chosen variant. A checkpoint that already has one is returned unchanged.

    Without a terminal, the first variant is chosen and named on stderr.
    """
    repo, colon, _ = checkpoint.removeprefix("hf:").partition(":")
    if colon:
        return checkpoint
    variants = server.ask(list_variants, VariantsQuery(repo), seconds=VARIANTS_TIMEOUT_S).variants
    if not variants:
        raise CommandError(f"{repo} has no GGUF model")
    return f"{repo}:{_pick_variant(repo, variants)}"


def _pick_variant(repo: str, variants: list[Variant]) -> str:
    names = [variant.name for variant in variants]
    if not sys.stdin.isatty():
        others = f" (also: {', '.join(map(output.plain, names[1:]))})" if len(names) > 1 else ""
        click.echo(f"Taking {output.plain(names[0])} of {repo}{others}.", err=True)
        return names[0]
    click.echo(repo, err=True)
    width = max(map(len, names))
    for number, variant in enumerate(variants, 1):
        parts = f"  {len(variant.files)} files" if len(variant.files) > 1 else ""
        name = output.plain(variant.name).ljust(width)
        click.echo(f"  {number}  {name}  {output.size(variant.size_bytes)}{parts}", err=True)
    click.echo(f"  {len(names) + 1}  Other: a quantization or a file of the repository", err=True)
    return _prompt_for_variant(names)


def _prompt_for_variant(names: list[str]) -> str:
    while True:
        answer = str(click.prompt("Which one", default="1", err=True)).strip()
        if not answer.isdecimal():
            return answer
        if 1 <= int(answer) <= len(names):
            return names[int(answer) - 1]
        if int(answer) == len(names) + 1:
            return str(click.prompt("Quantization or file", err=True)).strip()
        click.echo(f"Enter a number from 1 to {len(names) + 1}, or a name.", err=True)
