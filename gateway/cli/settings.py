"""Settings on the command line: the flags made from them, and the configuration they resolve to."""

from __future__ import annotations

import ast
import contextlib
import inspect
import itertools
import os
import re
import socket
import sys
from collections.abc import Callable, Container
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click
import msgspec
from click.shell_completion import CompletionItem

from gateway.cli.exit_codes import USAGE, CommandError
from protocol.config import resolver, settings_environment
from protocol.config.api_keys import KEY_VARIABLES
from protocol.config.config_file import ConfigFile
from protocol.config.fields import SECRET_SETTINGS, SettingField, setting_fields
from protocol.config.import_plan import ImportPlan
from protocol.config.resolver import ResolvedSettings
from protocol.config.settings import Settings, read_origins, read_settings
from protocol.failures import LemonbusError

_CONNECT_S: Final = 2.0


def config_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--config``, passed as ``config``."""
    return click.option(
        "--config",
        type=click.Path(dir_okay=False),
        metavar="FILE.toml",
        default="",
        help="Configuration file. Without it: LEMONBUS_CONFIG, the user's lemonbus/lemonbus.toml, /etc/lemonbus.",
    )(command)


def setting_options() -> list[click.Option]:
    """Return a flag for every setting that is not secret. An unused flag has the value None or ()."""
    helps = setting_help()
    return [
        _option(field, helps.get(name, "")) for name, field in setting_fields().items() if name not in SECRET_SETTINGS
    ]


def _option(field: SettingField, text: str) -> click.Option:
    if field.is_switch:
        off = f"--no-{field.flag[2:]}"
        return click.Option([field.name, f"{field.flag}/{off}"], default=None, help=text)
    default = getattr(Settings(), field.name)
    kind = click.Path(file_okay=False) if field.is_directory else None
    return click.Option(
        [field.name, field.flag],
        type=kind,
        multiple=field.is_list,
        default=None,
        show_default=_shown(default),
        metavar="|".join(field.choices) or _metavar(field),
        help=text + (" Repeatable." if field.is_list else ""),
        shell_complete=_completer(field.choices) if field.choices else None,
    )


def _shown(default: object) -> str | bool:
    """Return a default as a person would type it; False if there is none."""
    if isinstance(default, float):
        return f"{default:g}"
    return (", ".join(default) if isinstance(default, list) else str(default)) or False


def _metavar(field: SettingField) -> str:
    if field.is_directory:
        return "DIR"
    if field.is_list:
        return "NAME"
    return field.unit.upper() or ("N" if "number" in field.expected else "TEXT")


def _completer(choices: list[str]) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem | str]]:
    return lambda _context, _parameter, incomplete: [word for word in choices if word.startswith(incomplete)]


def given_flags(flags: dict[str, Any]) -> dict[str, Any]:
    """Return the flags that were used, each as its text or texts."""
    return {
        name: ("true" if value else "false") if isinstance(value, bool) else list(value) if _many(value) else value
        for name, value in flags.items()
        if value is not None and value != ()
    }


def resolved(flags: dict[str, Any] | None = None, config: str = "") -> ResolvedSettings:
    """Return the settings from these flags, the environment and the files; raises ``CommandError`` for wrong ones."""
    try:
        return resolver.load_settings(given_flags(flags or {}), config)
    except LemonbusError as problem:
        raise CommandError(str(problem), USAGE) from problem


def resolved_text(file: str, text: str) -> ResolvedSettings:
    """Return what a configuration file with this text says, whatever the environment; raises ``CommandError`` if it is wrong."""
    variables = {each.variable for each in setting_fields().values()}.union(*KEY_VARIABLES.values())
    environment = {name: value for name, value in os.environ.items() if name not in variables}
    try:
        return resolver.resolve({}, environment, ConfigFile(file, text), str(Path.cwd()))
    except LemonbusError as problem:
        raise CommandError(str(problem), USAGE) from problem


def recipe_warnings(found: ResolvedSettings) -> str:
    """Check what only the recipes know, such as their options; raises ``CommandError``, or returns the lines of warnings.

    Another process does it, because the command line imports nothing of the supervisor.
    """
    import subprocess  # noqa: PLC0415 - only `lemonbus config` needs it

    done = subprocess.run(
        [sys.executable, "-m", "supervisor.lifecycle.startup"],
        env={**os.environ, **supervisor_environment(found)},
        close_fds=False,  # large settings are passed through one
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise CommandError(done.stderr.removeprefix("lemonbus: ").rstrip("\n"), done.returncode)
    return done.stderr


def import_plan(source: str, path: str) -> ImportPlan:
    """Return what an import of another server's models would write; raises ``CommandError`` with the reason why it cannot be read.

    Another process makes it, which knows the recipes. ``path``: empty for where the source keeps its files.
    """
    import subprocess  # noqa: PLC0415 - only `lemonbus import` needs it

    done = subprocess.run(
        [sys.executable, "-m", "supervisor.imports", source, path], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise CommandError(done.stderr.rstrip("\n") or "the plan could not be made", done.returncode)
    return msgspec.json.decode(done.stdout, type=ImportPlan)


def settings_of_server(*, reads_configuration: bool = False) -> Settings:
    """Return the settings with the address and the key of this machine's server.

    A configuration file that is wrong is reported on stderr: the server runs with what it has accepted before.
    ``reads_configuration``: the server will be told to read it, and its answer says what is wrong.
    """
    try:
        return where_it_listens(resolver.load_settings().settings)
    except LemonbusError as problem:
        try:
            settings = resolver.readable_settings(os.environ)
        except LemonbusError as own:
            raise CommandError(str(own), USAGE) from own
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            running = read_settings(Path(settings.runtime_dir))
            settings = running if _is_open(running.base_url) else settings  # the last one may have ended
        what = "the configuration is wrong; `lemonbus config` says why" if reads_configuration else str(problem)
        click.echo(f"lemonbus: {what}\nlemonbus: asking the server at {settings.base_url} anyway", err=True)
        return settings


def where_it_listens(settings: Settings) -> Settings:
    """Return the settings with the address at which the server of this runtime directory still listens.

    The address differs while the file has a new one that the server has not read yet. The reload that moves it must
    find it, and whatever listens at the new address must not get the key. A server that got its address from flags only
    counts if nothing answers at the configured address.
    """
    runtime = Path(settings.runtime_dir)
    try:
        running = read_settings(runtime)
    except (OSError, msgspec.MsgspecError):
        return settings
    if running.base_url == settings.base_url or not _is_open(running.base_url):
        return settings
    origins = read_origins(runtime)
    flags = [name for name in ("host", "port") if origins.get(name, "").startswith("--")]
    if flags and _is_open(settings.base_url):
        return settings
    from_flags = f", but the server keeps its {' and '.join(f'--{name}' for name in flags)}"
    later = from_flags if flags else ", which takes effect with a reload"
    click.echo(
        f"lemonbus: asking the server at {running.base_url}; the configured address is {settings.base_url}{later}",
        err=True,
    )
    return msgspec.structs.replace(settings, host=running.host, port=running.port)


def _is_open(url: str) -> bool:
    """Return whether connections to the address are accepted."""
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname, parts.port or 0), _CONNECT_S):
            return True
    except OSError:
        return False


def supervisor_environment(found: ResolvedSettings) -> dict[str, str]:
    """Return environment variables that pass the settings, their origins and warnings to the supervisor.

    They are in the environment, not on a command line, because the settings contain the key. See ``settings_environment``.
    """
    origins = {name: str(origin) for name, origin in found.origins.items() if origin.kind != "default"}
    values = (found.settings, origins, found.warnings)
    texts = (msgspec.json.encode(value).decode() for value in values)
    return settings_environment.export(dict(zip(settings_environment.VARIABLES, texts, strict=True)))


def command_line_environment(flags: dict[str, Any], config: str) -> dict[str, str]:
    """Return the variable that tells how the server was started, so that it can read its configuration again."""
    line = {"flags": given_flags(flags), "config": config, "folder": str(Path.cwd())}
    return {"LEMONBUS_COMMAND_LINE": msgspec.json.encode(line).decode()}


def _many(value: object) -> bool:
    return isinstance(value, tuple)


def setting_help() -> dict[str, str]:
    """Return the help text of each setting by its name, from the docstring below its field in the source of ``Settings``.

    References to other settings become their flags.
    """
    found: dict[str, str] = {}
    for base in reversed(Settings.__mro__):
        if base.__module__.partition(".")[0] == Settings.__module__.partition(".")[0]:
            tree = ast.parse(inspect.getsource(base))
            found |= _texts_below_fields(tree.body[0]) if isinstance(tree.body[0], ast.ClassDef) else {}
    return {name: re.sub(r"``(.*?)``", partial(_plain, found), text) for name, text in found.items()}


def _texts_below_fields(declaration: ast.ClassDef) -> dict[str, str]:
    found: dict[str, str] = {}
    for node, below in itertools.pairwise(declaration.body):
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            found[node.target.id] = " ".join(str(below.value.value).split())
    return found


def _plain(known: Container[str], quoted: re.Match[str]) -> str:
    return f"--{quoted[1].replace('_', '-')}" if quoted[1] in known else quoted[1]
