"""``lemonbus import``: takes over the models of another server on this machine, without a copy of their files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from gateway.cli import imports, output
from gateway.cli.api_client import ApiClient
from gateway.cli.config_change import read_chosen
from gateway.cli.exit_codes import FAILED
from gateway.cli.file_change_options import note_url, present_settings, server_of
from gateway.cli.options import json_option
from gateway.cli.settings import config_option, import_plan
from protocol.config.import_plan import ImportPlan, LeftOut

_SHOWN: Final = 100
"""Characters of a value that are shown."""
_WORDS: Final = {
    "added": "added",
    "extended": "added to what is there",
    "replaced": "replaced",
    "unchanged": "there already",
    "kept": "kept: the file says something else",
}


@click.group("import", short_help="Take over the models of Ollama, llama-swap, Lemonade or LM Studio.")
def command() -> None:
    """Take over the models and settings of another server on this machine. Model files stay where they are.

    What was found becomes sections of the configuration file, which the running server then reads, as with `lemonbus config set`.
    Everything that is not carried over is named, with the reason. What the file says already stays, unless --replace is given, so a
    second import changes nothing.
    """


def _source(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of all sources."""
    for option in (
        click.option("--url", metavar="URL", callback=note_url, expose_value=False, help="Address of the server."),
        json_option("one JSON object"),
        config_option,
        click.option(
            "--replace", is_flag=True, help="Replace sections and settings that the file has with other values."
        ),
        click.option("--dry-run", is_flag=True, help="Only show what would be written; change nothing."),
    ):
        function = option(function)
    return function


@command.command()
@click.argument("path", required=False, default="", type=click.Path())
@_source
def ollama(path: str, **options: Any) -> None:
    """Take over the models of Ollama's store PATH: where OLLAMA_MODELS says, or else ~/.ollama/models.

    Each model keeps its name, its parameters (as defaults of requests), its system prompt, adapters and projector.
    """
    _import("ollama", path, **options)


@command.command("llama-swap")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@_source
def llama_swap(file: str, **options: Any) -> None:
    """Take over the models of llama-swap's configuration FILE.

    A llama-server with a model file becomes a model of lemonbus, which runs it with the same llama-server. Any other
    command becomes a program that lemonbus starts.
    """
    _import("llama-swap", file, **options)


@command.command()
@click.argument("path", required=False, default="", type=click.Path())
@_source
def lemonade(path: str, **options: Any) -> None:
    """Take over the models and settings of Lemonade: the folder PATH, or where it keeps its JSON files.

    Registered models must be in the cache of the hub on this machine. For others, the command that downloads them is shown.
    """
    _import("lemonade", path, **options)


@command.command("lm-studio")
@click.argument("path", required=False, default="", type=click.Path())
@_source
def lm_studio(path: str, **options: Any) -> None:
    """Take over the GGUF models of LM Studio's folder PATH, or of ~/.lmstudio/models, with what is set for single models."""
    _import("lm-studio", path, **options)


def _import(source: str, path: str, *, config: str, as_json: bool, replace: bool, dry_run: bool) -> None:
    plan = import_plan(source, path)
    if dry_run:
        _show_plan(plan, config, as_json=as_json, replace=replace)
        return
    server: ApiClient | None = server_of(present_settings(config))
    done = imports.apply(plan, config, server, replace=replace)
    notice = "" if done.changed.answer is not None else "no server is running: it takes effect at the next start"
    if as_json:
        file = {"source": plan.source, "file": str(done.changed.file), "change": done.changed.change}
        more = {"sections": done.steps, "left_out": done.left_out, "reload": done.changed.answer}
        output.print_json({**file, **more, "missing": done.missing, "notice": notice})
    else:
        _show_steps(plan.source, done.steps, done.left_out)
        click.echo(f"{done.changed.change.capitalize()}: {output.plain(str(done.changed.file))}")
        answer = done.changed.answer
        for warning in answer.warnings if answer is not None else done.changed.warnings.splitlines():
            click.echo(f"lemonbus: {output.plain(warning).removeprefix('lemonbus: ')}", err=True)
    if notice and not as_json:
        click.echo(f"lemonbus: {notice}", err=True)
    for model in done.missing:
        reason = "the server does not have this model: it reads another file, or may not read the model's file"
        click.echo(f"lemonbus: {output.plain(model)}: {reason}", err=True)
    if done.missing:
        click.get_current_context().exit(FAILED)


def _show_plan(plan: ImportPlan, config: str, *, as_json: bool, replace: bool) -> None:
    """Show what an import would do."""
    file, text = read_chosen(config)
    found = imports.edited(text, plan, replace=replace)
    warnings = imports.check(str(file), found)
    if as_json:
        shown = {"source": plan.source, "file": str(file), "change": "none"}
        output.print_json({**shown, "sections": found.steps, "left_out": found.left_out})
        return
    _show_steps(plan.source, found.steps, found.left_out)
    click.echo(warnings, nl=False, err=True)
    click.echo(f"Nothing was changed. Without --dry-run, this goes into {output.plain(str(file))}.")


def _show_steps(source: str, steps: list[imports.Step], left_out: list[LeftOut]) -> None:
    click.echo(f"From {output.plain(_short(source))}:")
    if steps:
        output.table(
            ("SETTING", "CHANGE", "VALUE"), [(each.setting, _WORDS[each.change], _value(each.value)) for each in steps]
        )
    else:
        click.echo("Nothing can be carried over.")
    if left_out:
        click.echo("\nNot carried over:")
        output.table(("MODEL", "WHAT", "WHY"), [(each.model or "-", each.what, each.why) for each in left_out])
        click.echo()


def _value(value: Any) -> str:
    """Return the value of a setting, or the keys of a section: the file has their values."""
    text = " ".join(value) if isinstance(value, dict) else output.json_text(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _short(path: str) -> str:
    home = str(Path.home())
    return f"~{path.removeprefix(home)}" if path.startswith(home + os.sep) else path
