"""What our servers over ONNX Runtime share: a part of the command line, the start and the end.

Exit codes: 0 after SIGTERM (which ends a server at once while it loads), 1 if the model cannot be loaded, 2 for an invalid command
line. A server listens on this machine only, and ends with the process that started it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from workers.backends.flag_table import COUNT, FILE, TEXT, Flag, FlagError, FlagTable
from workers.engine_servers.http_server import EngineHttpServer
from workers.engine_servers.shutdown_wait import open_parent_pidfd, wait_for_shutdown

ADDRESS: Final = "127.0.0.1"
SHARED_FLAGS: Final = (
    Flag("-m --model", FILE, "model"),
    Flag("--host", TEXT, "host"),
    Flag("-p --port", COUNT, "port"),
    Flag("-t --threads", COUNT, "threads"),
    Flag("-a --alias", TEXT, "alias"),
)
_DEFAULTS: Final[dict[str, Any]] = {"host": ADDRESS, "port": 8080, "threads": 0, "alias": ""}


def parse(table: FlagTable, defaults: Mapping[str, Any], words: list[str]) -> dict[str, Any]:
    """Return the options of a command line; raises :class:`~workers.backends.flag_table.FlagError`.

    ``table`` has :data:`SHARED_FLAGS`; ``defaults`` are those of its other flags.
    """
    found = {**_DEFAULTS, **defaults, **dict(table.parse(words))}
    if not found.get("model"):
        raise FlagError("-m is missing")
    if found["host"] not in (ADDRESS, "localhost"):
        raise FlagError(f"--host must be this machine: {ADDRESS}")
    if found["threads"] < 0 or not 0 < found["port"] < 65_536:
        raise FlagError("a number is out of range")
    return found


def run(
    name: str,
    key_variable: str,
    read: Callable[[], dict[str, Any]],
    load: Callable[[dict[str, Any], str], EngineHttpServer],
) -> int:
    """Serve until a signal; return the exit code.

    ``read`` returns the options. ``load`` makes the server, with its model, of these and of the key that requests need,
    which is in the environment variable ``key_variable``.
    """
    try:
        parent = open_parent_pidfd()
        given = read()
    except (FlagError, ProcessLookupError) as problem:
        sys.stderr.write(f"{name}: {problem}\n")
        return 2 if isinstance(problem, FlagError) else 1
    key = os.environ.pop(key_variable, "")
    try:
        server = load(given, key)
    except Exception as problem:  # noqa: BLE001 - any error here means that the model cannot be loaded
        sys.stderr.write(f"{name}: cannot load the model: {type(problem).__name__}: {problem}\n")
        return 1
    wait_for_shutdown(parent, server.open)
    return 0
