"""``lemonbus pull``: downloads a model, registers it if it is a new one, and shows how far it is."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

import click

from gateway.cli.api_client import ApiClient
from gateway.cli.downloads import download
from gateway.cli.exit_codes import CommandError
from gateway.cli.options import json_option, model_argument, server_option
from gateway.cli.variant_choice import choose_variant
from protocol.models.recipes import DEFAULT_RECIPE

_SWITCHES: Final = {"vision": "vision", "embeddings": "embedding", "reranking": "reranking"}
"""Label → the switch of a pull request that gives it."""


@click.command()
@model_argument()
@click.option("--checkpoint", default="", help="Register MODEL as this: OWNER/REPO:VARIANT of a Hugging Face hub.")
@click.option("--recipe", default="", help=f"What runs it. Without it {DEFAULT_RECIPE}.")
@click.option("--mmproj", default="", help="The projector file of a vision model, in the same repository.")
@click.option("--reasoning", is_flag=True, help="It thinks before it answers.")
@click.option("--vision", is_flag=True, help="It understands pictures.")
@click.option("--embedding", is_flag=True, help="It makes embeddings.")
@click.option("--reranking", is_flag=True, help="It ranks documents.")
@click.option("--name", default="", help="What to call a model that is given as OWNER/REPO.")
@json_option("every event as one line of JSON")
@server_option
def command(model: str, name: str, as_json: bool, server: ApiClient, **options: Any) -> None:
    """Download MODEL: a name of the catalogue, or OWNER/REPO of a Hugging Face hub.

    OWNER/REPO shows what there is to choose from; OWNER/REPO:VARIANT is chosen already, and so is OWNER/REPO with a
    --recipe other than llamacpp. Either is registered as user.REPO, or what --name says. With --checkpoint MODEL is
    the new name.

    A download that is already running is joined; one that broke off goes on where it was. Ctrl-C leaves the
    download to the server.
    """
    registration = {key: value for key, value in options.items() if value}
    if "/" in model and not options["checkpoint"]:
        known = _known(server, model)
        if known:
            model = known
        elif options["recipe"] not in ("", DEFAULT_RECIPE):
            # The hub is asked for GGUF variants; other recipes' files have none.
            checkpoint = model.removeprefix("hf:")
            model = named(name or checkpoint.partition(":")[0].rpartition("/")[2])
            registration["checkpoint"] = checkpoint
        else:
            model, found = _of_hub(server, model, name)
            registration = {**found, **registration}
    elif name:
        raise click.UsageError("--name is for a model that is given as OWNER/REPO.")
    elif registration:
        registration = {"recipe": DEFAULT_RECIPE, **registration}
        model = named(model)
    download(server, model, as_json, registration)
    if not as_json:
        click.echo(f"Installed model: {model}")


def named(name: str) -> str:
    """Return the name as it is registered."""
    return name if name.startswith("user.") else f"user.{name}"


def _known(server: ApiClient, checkpoint: str) -> str:
    """Return the name of a model that the catalogue has under this checkpoint, empty if there is none."""
    models = server.call("GET", "/v1/models?show_all=true")["data"]
    return next((str(entry["id"]) for entry in models if checkpoint in (entry["checkpoint"], entry["id"])), "")


def _of_hub(server: ApiClient, checkpoint: str, name: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the registration for a checkpoint of a hub; asks which variant is meant."""
    chosen = choose_variant(server, checkpoint).removeprefix("hf:")
    repository = chosen.partition(":")[0]
    try:
        about = server.call("GET", f"/v1/pull/variants?checkpoint={quote(repository, safe='/')}")
    except CommandError:
        about = {}  # the download will say what is the matter
    registration = {"checkpoint": chosen, "recipe": about.get("recipe", DEFAULT_RECIPE)}
    registration |= {_SWITCHES[label]: True for label in about.get("suggested_labels", []) if label in _SWITCHES}
    if about.get("mmproj_files"):
        registration["mmproj"] = about["mmproj_files"][0]
    return named(name or about.get("suggested_name") or repository.rpartition("/")[2]), registration
