"""``lemonbus pull``: downloads a model, registers a new one, and shows the progress."""

from __future__ import annotations

import contextlib
import sys
from typing import Any, Final

import click

from gateway.api.lemonade.downloads import pause_download
from gateway.api.lemonade.load import NamedModel
from gateway.api.lemonade.model_files import LemonadePullRequest, VariantsQuery, list_variants
from gateway.api.openai.models import ModelsQuery, list_models
from gateway.cli import output
from gateway.cli.api_client import ApiClient
from gateway.cli.exit_codes import CommandError
from gateway.cli.options import json_option, model_argument, server_option
from gateway.cli.progress import download, downloaded
from protocol.messages.model_files import Variant
from protocol.models.recipes import DEFAULT_RECIPE

_SWITCHES: Final = {"vision": "vision", "embeddings": "embedding", "reranking": "reranking"}
"""Label → the switch of a pull request that sets it."""
VARIANTS_TIMEOUT_S: Final = 60.0
"""The server asks the hub, which may be slow."""


@click.command("pull", short_help="Download a model.")
@model_argument()
@click.option(
    "--checkpoint", default="", help="Register MODEL as this checkpoint: OWNER/REPO:VARIANT of a Hugging Face hub."
)
@click.option("--recipe", default="", help=f"The recipe that runs it. Default: {DEFAULT_RECIPE}.")
@click.option("--mmproj", default="", help="The projector file of a vision model, in the same repository.")
@click.option(
    "--part",
    "parts",
    multiple=True,
    metavar="PART=OWNER/REPO:FILE",
    help="Another file of a model that is made of several, such as vae=OWNER/REPO:FILE; may be repeated.",
)
@click.option("--reasoning", is_flag=True, help="It reasons before it answers.")
@click.option("--vision", is_flag=True, help="It understands pictures.")
@click.option("--embedding", is_flag=True, help="It makes embeddings.")
@click.option("--reranking", is_flag=True, help="It ranks documents.")
@click.option("--name", default="", help="The name for a model that is given as OWNER/REPO.")
@click.option(
    "--pause", is_flag=True, help="Stop the download of MODEL, and keep what was fetched. The next pull resumes it."
)
@json_option("every event as one line of JSON")
@server_option
def command(
    model: str, parts: tuple[str, ...], name: str, pause: bool, as_json: bool, server: ApiClient, **options: Any
) -> None:
    """Download MODEL: a name of the catalogue, or OWNER/REPO of a Hugging Face hub.

    OWNER/REPO shows a menu of its variants. OWNER/REPO:VARIANT, and OWNER/REPO with a --recipe other than llamacpp,
    need no choice. The model is registered as user.REPO, or under --name. With --checkpoint, MODEL is the new name.

    The command joins a download that is already running, and continues one that broke off or was paused. Ctrl-C ends
    only the command, and the download goes on; --pause stops it.
    """
    request = LemonadePullRequest(**{key: value for key, value in options.items() if value})
    request.checkpoints = _named_parts(parts) or None
    if pause:
        if name or request != LemonadePullRequest():
            raise click.UsageError("--pause takes only the name of a model.")
        _pause(server, model, as_json)
        return
    if "/" in model and not request.checkpoint:
        request.model_name = _catalogue_name(server, model) or _register(server, request, model, name)
    elif name:
        raise click.UsageError("--name is for a model that is given as OWNER/REPO.")
    elif request != LemonadePullRequest():
        request.recipe = request.recipe or DEFAULT_RECIPE
        request.model_name = registered_name(model)
    else:
        request.model_name = model
    download(server, request, as_json)
    if not as_json:
        click.echo(f"Installed model: {request.model_name}")


def _named_parts(parts: tuple[str, ...]) -> dict[str, str]:
    split = [text.partition("=") for text in parts]
    if any(not (part and checkpoint) for part, _, checkpoint in split):
        raise click.UsageError("--part is PART=OWNER/REPO:FILE, such as vae=OWNER/REPO:FILE.")
    return {part: checkpoint for part, _, checkpoint in split}


def _pause(server: ApiClient, model: str, as_json: bool) -> None:
    """Pause a download, and say how far it has come."""
    job = server.ask(pause_download, NamedModel(model_name=model))
    if as_json:
        output.print_json(job)
    elif job.complete:
        click.echo(f"{output.plain(job.model_name)} is already downloaded.")
    else:
        click.echo(f"Paused {output.plain(job.model_name)}: {downloaded(job)}. `lemonbus pull` resumes it.")


def registered_name(name: str) -> str:
    """Return the name under which a model is registered."""
    return name if name.startswith("user.") else f"user.{name}"


def _catalogue_name(server: ApiClient, checkpoint: str) -> str:
    """Return the name of the catalogue's model with this checkpoint, empty if there is none."""
    models = server.ask(list_models, ModelsQuery(show_all=True)).data
    return next((entry.id for entry in models if checkpoint in (entry.checkpoint, entry.id)), "")


def _register(server: ApiClient, request: LemonadePullRequest, checkpoint: str, name: str) -> str:
    """Describe the model of a checkpoint in the request, after the user has chosen a variant, and return its name."""
    if request.recipe not in (None, DEFAULT_RECIPE):
        # Only GGUF repositories have variants.
        request.checkpoint = checkpoint.removeprefix("hf:")
        return registered_name(name or _repository_name(request.checkpoint))
    request.checkpoint = choose_variant(server, checkpoint).removeprefix("hf:")
    request.recipe = DEFAULT_RECIPE
    suggested = _repository_name(request.checkpoint)
    with contextlib.suppress(CommandError):  # the download reports the problem
        about = server.ask(list_variants, VariantsQuery(request.checkpoint.partition(":")[0]))
        request.recipe, suggested = about.recipe, about.suggested_name or suggested
        request.mmproj = request.mmproj or next(iter(about.mmproj_files), None)
        for label in _SWITCHES.keys() & about.suggested_labels:
            setattr(request, _SWITCHES[label], True)
    return registered_name(name or suggested)


def _repository_name(checkpoint: str) -> str:
    return checkpoint.partition(":")[0].rpartition("/")[2]


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
