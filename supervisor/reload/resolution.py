"""``python -m supervisor.reload.resolution``: reads the configuration again, with the flags and the environment of the start.

This is a separate process: a file on a dead disk must not stop the supervisor. It writes one :class:`Resolution` as
JSON to the descriptor in ``LEMONBUS_RESULT_FD``. ``lemonbus serve`` passes on how it was called in
``LEMONBUS_COMMAND_LINE``.
"""

from __future__ import annotations

from protocol.runtime import memory

if __name__ == "__main__":
    memory.pause_gc()

import contextlib
import os
from collections.abc import Mapping, MutableMapping
from typing import Final

import msgspec

from protocol.config.api_keys import check_key_file
from protocol.config.config_file import read_config_file
from protocol.config.resolver import ResolvedSettings, require_key_beyond_loopback, resolve
from protocol.config.settings import Settings
from protocol.failures import Code, Failure, LemonbusError
from supervisor.models.options.settings_check import check_settings, setting_warnings

COMMAND_LINE_VARIABLE: Final = "LEMONBUS_COMMAND_LINE"
RESULT_VARIABLE: Final = "LEMONBUS_RESULT_FD"


class CommandLine(msgspec.Struct, frozen=True):
    """How ``lemonbus serve`` was called: its flags as text, the requested file, and the base of relative paths."""

    flags: dict[str, str | list[str]] = {}
    config: str = ""
    folder: str = "/"


class Resolution(msgspec.Struct, frozen=True, omit_defaults=True):
    """The settings of the new configuration, or why there are none."""

    settings: Settings | None = None
    origins: dict[str, str] = {}
    warnings: list[str] = []
    failure: Failure | None = None


def resolve_again(environment: Mapping[str, str]) -> Resolution:
    """Return what the configuration says now. No mistake of the operator makes it raise."""
    command_line = msgspec.json.decode(environment.get(COMMAND_LINE_VARIABLE, "{}"), type=CommandLine)
    try:
        file = read_config_file(environment, command_line.config)
        found = resolve(command_line.flags, environment, file, command_line.folder)
    except LemonbusError as problem:
        return Resolution(failure=msgspec.structs.replace(problem.failure, code=Code.INVALID_REQUEST))
    try:
        require_key_beyond_loopback(found.settings)
        check_settings(found.settings)
        if found.settings.placement == "ray":
            from protocol.config.ray_address import with_cluster_address  # noqa: PLC0415 - only then is it needed

            found = found._replace(settings=with_cluster_address(found.settings, environment))
        check_key_file(found.settings)
    except LemonbusError as problem:
        return Resolution(failure=_with_origin(problem.failure, found))
    origins = {name: str(origin) for name, origin in found.origins.items() if origin.kind != "default"}
    more = [
        f"{origins.get(each.setting, 'default')}: {each.setting}: {each.text}"
        for each in setting_warnings(found.settings)
    ]
    return Resolution(found.settings, origins, [*found.warnings, *more])


def _with_origin(failure: Failure, found: ResolvedSettings) -> Failure:
    """Return the failure of a setting with its place, as a start would report it."""
    origin = found.origins.get(failure.param)
    place = f"{origin}: " if origin is not None and origin.kind != "default" else ""
    return msgspec.structs.replace(failure, code=Code.INVALID_REQUEST, message=f"{place}{failure.message}")


def main(environment: MutableMapping[str, str]) -> int:
    """Write the resolution."""
    result = int(environment[RESULT_VARIABLE])
    with contextlib.suppress(BrokenPipeError), os.fdopen(result, "wb") as pipe:  # the supervisor may have ended
        pipe.write(msgspec.json.encode(resolve_again(environment)))
    return 0


if __name__ == "__main__":
    main(os.environ)
