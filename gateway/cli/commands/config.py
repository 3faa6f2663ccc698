"""``lemonbus config``: shows every setting with its value and its origin, and how the running server differs; changes one."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from gateway.api.common.routes import Nothing
from gateway.api.operator.configuration import SettingInUse, show_settings
from gateway.cli import output
from gateway.cli.api_client import ApiClient
from gateway.cli.config_change import ChangedFile, change_file
from gateway.cli.exit_codes import UNREACHABLE, USAGE, CommandError
from gateway.cli.file_change_options import note_url, present_settings, server_of
from gateway.cli.options import json_option
from gateway.cli.setting_changes import is_part, notice_of, print_changes
from gateway.cli.setting_words import setting_path, setting_value
from gateway.cli.settings import config_option, recipe_warnings, resolved
from protocol.config.fields import SECRET_SETTINGS, setting_fields
from protocol.config.resolver import ResolvedSettings, masked
from protocol.config.sections import dotted_name, section_values
from protocol.config.settings import Settings
from protocol.config.toml_edit import UnchangeableError, with_value, without_value
from protocol.config.toml_lines import KeyPath

_TIMEOUT_S: Final = 5.0


@click.group(
    "config",
    short_help="Show every setting and where its value comes from, or change one.",
    invoke_without_command=True,
)
@config_option
@json_option("one JSON object")
@click.pass_context
def command(context: click.Context, config: str, as_json: bool) -> None:
    """Show the settings that `lemonbus serve` would use if started from this shell, and where each value comes from. Keys are masked.

    If a server answers at the address, the output also shows its directories and what differs: another user may have started it.
    `get`, `set` and `unset` are about one setting.
    """
    if context.invoked_subcommand is not None:
        return
    found = resolved(config=config)
    click.echo(recipe_warnings(found), nl=False, err=True)
    values = _values(found.settings)
    server = server_of(found.settings)
    running = _running_settings(server)
    if as_json:
        shown = {name: _with_origin(found, name, value) for name, value in values.items()}
        for name, of_server in running.items():
            shown.setdefault(name, {})["server"] = of_server
        output.print_json(shown)
    else:
        output.table(
            ("SETTING", "VALUE", "ORIGIN"),
            [(name, json.dumps(value, ensure_ascii=False), str(found.origins[name])) for name, value in values.items()],
        )
        if server is not None and running:
            _show_running(server.url, running, values)
    for warning in found.warnings:
        click.echo(f"lemonbus: {warning}", err=True)


def _values(settings: Settings) -> dict[str, Any]:
    """Return all settings by their dotted names, as people may see them."""
    return {name: masked(name, getattr(settings, name)) for name in setting_fields()} | section_values(settings)


def _with_origin(found: ResolvedSettings, name: str, value: Any) -> dict[str, Any]:
    return {"value": value, "origin": found.origins[name].kind, "where": found.origins[name].name}


def _path(_context: click.Context, _parameter: click.Parameter, text: str) -> KeyPath:
    try:
        return setting_path(text)
    except ValueError as problem:
        raise click.BadParameter(str(problem)) from problem


def _keys(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem | str]:
    return [name for name in setting_fields() if name.startswith(incomplete)]


def _setting_command(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument KEY, passed as ``path``, ``--json``, ``--url``, and ``--config``, which may also stand before the subcommand."""

    @functools.wraps(function)
    def called(*, config: str, **others: Any) -> Any:
        parent = click.get_current_context().parent
        return function(config=config or (parent.params["config"] if parent else ""), **others)

    key = click.argument("path", metavar="KEY", callback=_path, shell_complete=_keys)
    url = click.option("--url", metavar="URL", callback=note_url, expose_value=False, help="Address of the server.")
    return key(config_option(json_option("one JSON object")(url(called))))


@command.command()
@_setting_command
def get(path: KeyPath, config: str, as_json: bool) -> None:
    """Print the value of the setting KEY that `lemonbus serve` would use if started from this shell. Keys are masked.

    The key of a section is written as in the file: models."Qwen3-0.6B-GGUF".ttl
    """
    found = resolved(config=config)
    name = dotted_name(path)
    values = {each: value for each, value in _values(found.settings).items() if is_part(name, each)}
    if not values:
        raise CommandError(f"{name} is not set")
    if as_json:
        shown = {each: _with_origin(found, each, value) for each, value in values.items()}
        output.print_json(shown.get(name, shown))
        return
    for each, value in values.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        click.echo(output.plain(text if each == name else f"{each} = {text}"))


@command.command("set")
@_setting_command
@click.argument("words", metavar="VALUE...", nargs=-1, required=True)
def set_value(path: KeyPath, words: tuple[str, ...], config: str, as_json: bool) -> None:
    """Set KEY in the configuration file, and let the running server read it.

    \b
    lemonbus config set max_loaded_models 2
    lemonbus config set allowed_hosts a.example.org b.example.org     a list
    lemonbus config set 'models."Qwen3-0.6B-GGUF".options.ctx_size' 8192
    lemonbus config set models.tiny.nice -- -5                        what begins with - stands behind --
    lemonbus config set admin_api_key -                               reads it, so that no process list shows it

    Comments and order stay. A value that is not allowed changes nothing. The server of this machine reads the file at
    once, and the output says when the change takes effect; if the server refuses it, the file is put back.
    """  # noqa: D301 - the escape is click's mark for lines that stay as they are
    if path[0] in SECRET_SETTINGS:
        words = (_secret(dotted_name(path), words),)
    try:
        value = setting_value(path, words)
    except ValueError as problem:
        raise click.UsageError(f"{dotted_name(path)}: {problem}") from problem
    _change(path, config, as_json, lambda text: with_value(text, path, value))


@command.command()
@_setting_command
def unset(path: KeyPath, config: str, as_json: bool) -> None:
    """Remove KEY, or a whole section, from the configuration file, and let the running server read it."""

    def edit(text: str) -> str:
        try:
            return without_value(text, path)
        except KeyError:
            raise CommandError(f"{dotted_name(path)} is not in the file") from None

    _change(path, config, as_json, edit)


def _secret(name: str, words: tuple[str, ...]) -> str:
    """Read a key from standard input."""
    if words != ("-",):
        raise click.UsageError(f"Every user of this machine can read command lines: write - instead of the {name}.")
    if sys.stdin.isatty():
        return str(click.prompt(name, hide_input=True, err=True))
    return sys.stdin.readline().rstrip("\n")


def _change(path: KeyPath, config: str, as_json: bool, edit: Callable[[str], str]) -> None:
    """Change the file, reload the server, and say what happened."""
    server = server_of(present_settings(config))
    try:
        changed = change_file(config, edit, server)
    except UnchangeableError as problem:
        raise CommandError(f"{dotted_name(path)}: {problem}", USAGE) from problem
    name = dotted_name(path)
    notice = _notice(name, changed, server)
    if as_json:
        file = {"file": str(changed.file), "change": changed.change}
        output.print_json({"setting": name, **file, "reload": changed.answer, "notice": notice})
        return
    click.echo(f"{changed.change.capitalize()}: {output.plain(str(changed.file))}")
    if changed.answer is None:
        click.echo(changed.warnings, nl=False, err=True)
    else:
        for warning in changed.answer.warnings:
            click.echo(f"lemonbus: {output.plain(warning)}", err=True)
        if changed.answer.changes:
            print_changes(changed.answer)
    if notice:
        click.echo(f"lemonbus: {name}: {output.plain(notice)}", err=True)


def _notice(name: str, changed: ChangedFile, server: ApiClient | None) -> str:
    """Return what the operator should know about the changed setting."""
    if changed.answer is None or server is None:
        return "no server is running: it takes effect at the next start"
    values = {each: value for each, value in _values(changed.resolved.settings).items() if is_part(name, each)}
    try:
        running = server.ask(show_settings, Nothing(), seconds=_TIMEOUT_S).settings
    except CommandError as problem:
        return "" if changed.answer.changes else f"whether the server uses it is unknown: {problem}"
    return notice_of(name, values, changed.answer, running)


def _running_settings(server: ApiClient | None) -> dict[str, SettingInUse]:
    """Return the settings of the running server, by their names; empty if it cannot be asked, which stderr says."""
    if server is None:
        return {}
    try:
        return server.ask(show_settings, Nothing(), seconds=_TIMEOUT_S).settings
    except CommandError as problem:
        if problem.exit_code == UNREACHABLE:
            click.echo(f"lemonbus: no server is running at {server.url}", err=True)
        else:
            click.echo(f"lemonbus: the settings of the running server are unknown: {problem}", err=True)
        return {}


def _show_running(url: str, running: dict[str, SettingInUse], values: dict[str, Any]) -> None:
    """Show the directories of the running server, and where its settings differ from those here."""
    rows = []
    for name, of_server in running.items():
        field = setting_fields().get(name)
        if name in SECRET_SETTINGS:  # masked, and the key here is for this command
            continue
        differs = name not in values or of_server.value != values[name]
        if differs or (field is not None and field.is_directory):
            value = json.dumps(of_server.value, ensure_ascii=False)
            rows.append((name, value, of_server.origin, "differs" if differs else "the same"))
    rows.extend((name, "-", "-", "differs") for name in values if name not in running)
    click.echo(f"\nThe server at {url} runs with:")
    output.table(("SETTING", "VALUE", "ORIGIN", "HERE"), rows)
