"""``lemonbus pull``: downloads a model, registers a new one, and shows the progress."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

import click

from gateway.api.openai.models import ModelsQuery, list_models
from gateway.cli.api_client import ApiClient
from gateway.cli.downloads import download
from gateway.cli.exit_codes import CommandError
from gateway.cli.options import json_option, model_argument, server_option
from gateway.cli.variant_choice import choose_variant
from protocol.models.recipes import DEFAULT_RECIPE

_SWITCHES: Final = {"vision": "vision", "embeddings": "embedding", "reranking": "reranking"}
"""Label → the switch of a pull request that sets it."""


@click.command("pull", short_help="Download a model.")
@model_argument()
@click.option(
    "--checkpoint", default="", help="Register MODEL as this checkpoint: OWNER/REPO:VARIANT of a Hugging Face hub."
)
@click.option("--recipe", default="", help=f"The recipe that runs it. Default: {DEFAULT_RECIPE}.")
@click.option("--mmproj", default="", help="The projector file of a vision model, in the same repository.")
@click.option("--reasoning", is_flag=True, help="It reasons before it answers.")
@click.option("--vision", is_flag=True, help="It understands pictures.")
@click.option("--embedding", is_flag=True, help="It makes embeddings.")
@click.option("--reranking", is_flag=True, help="It ranks documents.")
@click.option("--name", default="", help="The name for a model that is given as OWNER/REPO.")
@json_option("every event as one line of JSON")
@server_option
def command(model: str, name: str, as_json: bool, server: ApiClient, **options: Any) -> None:
    """Download MODEL: a name of the catalogue, or OWNER/REPO of a Hugging Face hub.

    OWNER/REPO shows a menu of its variants. OWNER/REPO:VARIANT, and OWNER/REPO with a --recipe other than llamacpp,
    need no choice. The model is registered as user.REPO, or under --name. With --checkpoint, MODEL is the new name.

    The command joins a download that is already running, and continues one that broke off. Ctrl-C ends only the
    command, and the download goes on.
    """
    registration = {key: value for key, value in options.items() if value}
    if "/" in model and not options["checkpoint"]:
        known = _catalogue_name(server, model)
        if known:
            model = known
        elif options["recipe"] not in ("", DEFAULT_RECIPE):
            # Only GGUF repositories have variants.
            checkpoint = model.removeprefix("hf:")
            model = registered_name(name or checkpoint.partition(":")[0].rpartition("/")[2])
            registration["checkpoint"] = checkpoint
        else:
            model, found = _hub_registration(server, model, name)
            registration = {**found, **registration}
    elif name:
        raise click.UsageError("--name is for a model that is given as OWNER/REPO.")
    elif registration:
        registration = {"recipe": DEFAULT_RECIPE, **registration}
        model = registered_name(model)
    download(server, model, as_json, registration)
    if not as_json:
        click.echo(f"Installed model: {model}")


def registered_name(name: str) -> str:
    """Return the name under which a model is registered."""
    return name if name.startswith("user.") else f"user.{name}"


def _catalogue_name(server: ApiClient, checkpoint: str) -> str:
    """Return the name of the catalogue's model with this checkpoint, empty if there is none."""
    models = server.ask(list_models, ModelsQuery(show_all=True)).data
    return next((entry.id for entry in models if checkpoint in (entry.checkpoint, entry.id)), "")


def _hub_registration(server: ApiClient, checkpoint: str, name: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the registration for a checkpoint of a hub, after the user has chosen a variant."""
    chosen = choose_variant(server, checkpoint).removeprefix("hf:")
    repository = chosen.partition(":")[0]
    try:
        about = server.call("GET", f"/v1/pull/variants?checkpoint={quote(repository, safe='/')}")
    except CommandError:
        about = {}  # the download reports the problem
    registration = {"checkpoint": chosen, "recipe": about.get("recipe", DEFAULT_RECIPE)}
    registration |= {_SWITCHES[label]: True for label in about.get("suggested_labels", []) if label in _SWITCHES}
    if about.get("mmproj_files"):
        registration["mmproj"] = about["mmproj_files"][0]
    return registered_name(name or about.get("suggested_name") or repository.rpartition("/")[2]), registration
