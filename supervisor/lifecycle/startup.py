"""Checks before the server starts: settings that the recipes accept, and usable directories.

The command line passes the settings, and the origins of those that are not defaults, as ``protocol/config/settings_environment.py``
says. ``python -m supervisor.lifecycle.startup`` only checks the settings, for ``lemonbus config``.
"""

from __future__ import annotations

from protocol.runtime import memory

if __name__ == "__main__":
    memory.pause_gc()

import errno
import itertools
import os
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from protocol import file_lock
from protocol.config import settings_environment
from protocol.config.api_keys import KEY_VARIABLES, check_key_file
from protocol.config.settings import Settings, read_settings, write_settings
from protocol.failures import NO_SPACE, Code, Failure, LemonbusError, invalid
from protocol.runtime import logs
from protocol.wire.bus_address import ClusterKeys, ClusterMembership, write_membership
from protocol.wire.endpoints import RuntimeDirectory
from supervisor.keeper import error_output
from supervisor.models.options.settings_check import check_settings, setting_warnings

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
"""Exit code for errors that the next start would also have, so a service manager does not restart the server."""

_TEMPORARY_ERRORS: Final = frozenset({*NO_SPACE, errno.EIO, errno.ENFILE, errno.EMFILE, errno.ENOMEM})
"""Errors of the machine, not of the setting."""
_NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS})
"""Errors of file systems without locks."""
_STATE_LOCK: Final = "server.lock"

log = logs.get_logger()


class StartupSettings(NamedTuple):
    """The settings, where non-default values come from, and warnings."""

    settings: Settings
    origins: dict[str, str]
    warnings: tuple[str, ...] = ()
    secrets: Mapping[str, str] = {}
    """The variables with keys that were removed from the environment."""

    def line_for(self, failure: Failure) -> str:
        """Return the line for the operator, with the setting's origin if a setting is the cause."""
        if not failure.param:
            return failure.message
        return f"{self.origins.get(failure.param, 'default')}: {failure.message}"


def take_settings(environment: MutableMapping[str, str]) -> StartupSettings:
    """Remove the settings and all keys from the environment, which children inherit, and return the settings.

    Raises ``msgspec.ValidationError``.
    """
    variables = itertools.chain.from_iterable(KEY_VARIABLES.values())
    secrets = {variable: environment.pop(variable) for variable in variables if variable in environment}
    handed = settings_environment.take(environment)
    return StartupSettings(
        msgspec.json.decode(handed.get("LEMONBUS_SETTINGS", "{}"), type=Settings),
        msgspec.json.decode(handed.get("LEMONBUS_ORIGINS", "{}"), type=dict[str, str]),
        msgspec.json.decode(handed.get("LEMONBUS_WARNINGS", "[]"), type=tuple[str, ...]),
        secrets,
    )


def report_failure(given: StartupSettings, failure: Failure) -> int:
    """Print why the server cannot start; return the exit code."""
    return print_line(given.line_for(failure), EXIT_USAGE if failure.code is Code.INVALID_REQUEST else EXIT_FAILED)


def print_line(line: str, code: int) -> int:
    """Print one line on stderr, if it can be written to; return the exit code."""
    error_output.print_line(line)
    return code


def prepare_state(settings: Settings) -> None:
    """Make the directories and read the file of API keys; raises a failure that names the setting."""
    prepare_directories(settings)
    check_key_file(settings)


def prepare_directories(settings: Settings) -> None:
    """Make the directories and try to write to them; raises a failure that names the setting."""
    for name in ("state_dir", "cache_dir"):
        path = Path(getattr(settings, name))
        try:
            path.mkdir(parents=True, exist_ok=True)
            attempt = path / f".lemonbus.{os.getpid()}.new"
            attempt.touch()
            attempt.unlink()
        except OSError as problem:
            raise _unusable(name, path, problem) from problem


def lock_state(settings: Settings, pid: int) -> int:
    """Lock the state directory in the name of process ``pid``; return the descriptor of the lock, -1 if there can be none.

    Raises ``conflict`` if another server uses it: each would overwrite the other's files.
    """
    path = Path(settings.state_dir)
    try:
        return file_lock.lock(path / _STATE_LOCK, pid)
    except file_lock.HeldError as held:
        message = f"another lemonbus (pid {held.holder}) uses state_dir {path}; stop it, or choose another --state-dir"
        raise Failure(Code.CONFLICT, message, param="state_dir").raised() from None
    except OSError as problem:
        if problem.errno not in _NO_LOCKS:
            raise _unusable("state_dir", path, problem) from problem
        log.warning("this state_dir cannot be locked: start no other server with it", reason=problem.strerror)
        return -1


def runtime_directory(settings: Settings, pid: int = 0) -> RuntimeDirectory:
    """Return the runtime directory, locked in the name of process ``pid`` (0: this one).

    Raises ``conflict`` if another server uses it, or like :func:`prepare_directories`.
    """
    path = Path(settings.runtime_dir)
    try:
        return RuntimeDirectory(path, pid)
    except OSError as problem:
        raise _unusable("runtime_dir", path, problem) from problem


def write_first_settings(given: StartupSettings, runtime: Path) -> None:
    """Write the settings for all processes of the server; raises like :func:`runtime_directory` if the disk is full."""
    try:
        write_settings(given.settings, runtime, given.origins)
    except OSError as problem:
        raise _unusable("runtime_dir", runtime, problem) from problem


def bus_failure(problem: OSError | LemonbusError, settings: Settings) -> Failure:
    """Return why the sockets of the bus could not be made."""
    if isinstance(problem, LemonbusError):
        return problem.failure
    if problem.filename and problem.filename == settings.cluster_address:
        reason = f"cannot listen on {settings.cluster_address} and the port after it: {problem.strerror}"
        busy = problem.errno in (errno.EADDRINUSE, *_TEMPORARY_ERRORS)
        return Failure(Code.CONFLICT if busy else Code.INVALID_REQUEST, reason, param="cluster_address")
    return _unusable("runtime_dir", Path(settings.runtime_dir), problem).failure


def cluster_keys(settings: Settings, runtime: Path) -> ClusterKeys | None:
    """Return the keys of a server with a cluster, and write what its processes on this node need; otherwise None.

    Raises a failure that names ``state_dir`` or ``runtime_dir``.
    """
    keys = None
    if settings.cluster_address:
        from protocol.config.cluster_keys import ensure_cluster_keys  # noqa: PLC0415 - only servers with a cluster need it

        try:
            keys = ensure_cluster_keys(Path(settings.state_dir))
        except OSError as problem:
            raise _unusable("state_dir", Path(settings.state_dir), problem) from problem
    try:
        joined = ClusterMembership(settings.cluster_address, keys.of_member()) if keys is not None else None
        write_membership(runtime, joined)
    except OSError as problem:
        raise _unusable("runtime_dir", runtime, problem) from problem
    return keys


def earlier_grace(runtime: Path) -> float:
    """Return the grace period, in seconds, of the server that had the runtime directory before us; 0 if there was none."""
    try:
        return read_settings(runtime).grace
    except (OSError, msgspec.MsgspecError):
        return 0.0


def accepted_settings(first: StartupSettings, runtime: Path) -> StartupSettings:
    """Return the settings that the server accepted last.

    If their file cannot be read, warn and return the first ones.
    """
    try:
        return first._replace(settings=read_settings(runtime), warnings=())
    except (OSError, msgspec.MsgspecError) as problem:
        lost = f"the settings that were accepted last cannot be read, so those of the start are used: {problem}"
        return first._replace(warnings=(lost,))


def _unusable(name: str, path: Path, problem: OSError) -> LemonbusError:
    reason = "it is not a directory" if isinstance(problem, FileExistsError) else problem.strerror or str(problem)
    message = f"{name} {path} cannot be used: {reason}"
    if problem.errno in NO_SPACE:
        message += f"; free space or inodes there (df, df -i), or choose another --{name.replace('_', '-')}"
    if problem.errno in _TEMPORARY_ERRORS:
        return Failure(Code.INTERNAL, message, param=name).raised()
    return invalid(message, name)


def main() -> int:
    """Check the settings that were passed."""
    given = take_settings(os.environ)
    try:
        check_settings(given.settings)
    except LemonbusError as problem:
        return report_failure(given, problem.failure)
    for each in setting_warnings(given.settings):
        print_line(f"{given.origins.get(each.setting, 'default')}: {each.setting}: {each.text}", 0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
