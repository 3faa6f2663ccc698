"""``lemonbus backends``: lists, installs and removes the programs that models run on."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from gateway.api.lemonade.install import BackendRequest, InstallRequest, install_backend, uninstall_backend
from gateway.api.lemonade.system_info import SystemInfoQuery, show_system_info
from gateway.cli import output
from gateway.cli.api_client import ApiClient
from gateway.cli.exit_codes import CommandError
from gateway.cli.options import connect_client, given_url, json_option, server_option
from gateway.cli.progress import show_progress


def _checked(_context: click.Context, _parameter: click.Parameter, given: str) -> str:
    recipe, _, backend = given.partition(":")
    if not recipe or not backend:
        raise click.BadParameter(f"{given!r} is not RECIPE:BACKEND, such as llamacpp:vulkan.")
    return given


def _names(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem | str]:
    server = context.params.get("server") or connect_client(given_url(context))
    try:
        recipes = server.ask(show_system_info, SystemInfoQuery(), seconds=1.0).recipes
    except CommandError:
        return []  # a completion must not print an error
    names = [f"{recipe}:{backend}" for recipe, about in recipes.items() for backend in about.backends]
    return [name for name in names if name.startswith(incomplete)]


_argument = click.argument("backend", metavar="RECIPE:BACKEND", callback=_checked, shell_complete=_names)


@click.group(
    "backends", short_help="Show, install or remove the programs that models run on.", invoke_without_command=True
)
@json_option("the recipes of the server's system info")
@server_option
@click.pass_context
def command(context: click.Context, as_json: bool, server: ApiClient) -> None:
    """Show, install or remove the programs that models run on.

    Without a subcommand, it lists them.
    """
    if context.invoked_subcommand is None:
        context.invoke(show, as_json=as_json, server=server)
    elif as_json:
        raise click.UsageError("--json goes after the subcommand.")


@command.command(name="list")
@json_option("the recipes of the server's system info")
@server_option
def show(as_json: bool, server: ApiClient) -> None:
    """List all backends, their states, and the actions that change them."""
    recipes = server.ask(show_system_info, SystemInfoQuery()).recipes
    if as_json:
        output.print_json(recipes)
        return
    output.table(
        ("BACKEND", "STATE", "VERSION", "DEVICES", "NOTE"),
        [
            (f"{recipe}:{name}" + (" *" if name == about.default_backend else ""), *output.backend_columns(backend))
            for recipe, about in recipes.items()
            for name, backend in about.backends.items()
            if name != "default" or name == about.default_backend
        ],
    )
    click.echo("\n* the recipe's default")


@command.command()
@_argument
@click.option("--force", "-f", is_flag=True, help="Even if this machine has no device for the backend.")
@json_option("every event as one line of JSON")
@server_option
def install(backend: str, force: bool, as_json: bool, server: ApiClient) -> None:
    """Install or update a backend, and show the progress.

    The command joins an installation that is already running, and continues a download that broke off. Ctrl-C ends only
    the command, and the installation goes on.
    """
    recipe, _, name = backend.partition(":")
    broken = f"the installation of {backend} broke off; install it again to continue"
    request = InstallRequest(recipe, name, force=force, stream=True)
    show_progress(server, install_backend, request, as_json, broken)
    if not as_json:
        click.echo(f"Installed backend: {backend}")


@command.command()
@_argument
@json_option("the server's answer")
@server_option
def uninstall(backend: str, as_json: bool, server: ApiClient) -> None:
    """Remove a backend. Models that use it are unloaded first."""
    recipe, _, name = backend.partition(":")
    answer = server.ask(uninstall_backend, BackendRequest(recipe, name), seconds=None)
    if as_json:
        output.print_json(answer)
    else:
        click.echo(f"Removed backend: {backend}")
