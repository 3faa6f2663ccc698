"""Our server for ONNX Runtime GenAI: OpenAI's chats and completions over its library, one answer at a time.

The command line includes ryzenai-server's (``-m DIR --port P --ctx-size N``). Exit codes: 0 after SIGTERM (which ends
it at once while it loads), 1 if the model cannot be loaded, 2 for an invalid command line. It listens on this machine
only, and ends with the process that started it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Final

from workers.backends.flag_table import COUNT, FILE, INTEGER, NUMBER, TEXT, Flag, FlagError, FlagTable
from workers.engine_servers.oga_server.http_handler import OgaHttpServer
from workers.engine_servers.oga_server.model import OgaModel, OgaSampling
from workers.engine_servers.shutdown_wait import open_parent_pidfd, wait_for_shutdown

KEY: Final = "OGA_API_KEY"
"""The environment variable with the key that requests need."""
_LOOPBACK: Final = ("127.0.0.1", "localhost")
_FLAGS: Final = FlagTable(
    Flag("-m --model", FILE, "model"),
    Flag("--host", TEXT, "host"),
    Flag("-p --port", COUNT, "port"),
    Flag("-c --ctx-size", COUNT, "context"),
    Flag("-t --threads", COUNT, "threads"),
    Flag("-a --alias", TEXT, "alias"),
    Flag("--temp", NUMBER, "temperature"),
    Flag("--top-p", NUMBER, "top_p"),
    Flag("--top-k", INTEGER, "top_k"),
)
_DEFAULTS: Final[dict[str, Any]] = {"host": "127.0.0.1", "port": 8080, "context": 0, "threads": 0, "alias": ""}


def parse(words: list[str]) -> dict[str, Any]:
    """Return the options of a command line; raises :class:`~workers.backends.flag_table.FlagError`."""
    found: dict[str, Any] = {**_DEFAULTS, **OgaSampling()._asdict(), **dict(_FLAGS.parse(words))}
    if not found.get("model"):
        raise FlagError("-m is missing")
    if found["host"] not in _LOOPBACK:
        raise FlagError("--host must be this machine: 127.0.0.1")
    if min(found["context"], found["threads"]) < 0 or not 0 < found["port"] < 65_536:
        raise FlagError("a number is out of range")
    found["alias"] = found["alias"] or Path(found["model"]).resolve().name
    return found


def main(words: list[str]) -> int:
    """Serve until a signal; return the exit code."""
    try:
        parent = open_parent_pidfd()
        given = parse(words)
    except (FlagError, ProcessLookupError) as problem:
        sys.stderr.write(f"oga-server: {problem}\n")
        return 2 if isinstance(problem, FlagError) else 1
    key = os.environ.pop(KEY, "")
    try:
        sampling = OgaSampling(given["temperature"], given["top_p"], given["top_k"])
        model = OgaModel(Path(given["model"]), given["threads"], given["context"], sampling)
        server = OgaHttpServer(("127.0.0.1", given["port"]), model, given["alias"], key)
    except Exception as problem:  # noqa: BLE001 - any error here means that the model cannot be loaded
        sys.stderr.write(f"oga-server: cannot load the model: {type(problem).__name__}: {problem}\n")
        return 1
    wait_for_shutdown(parent, server.open)
    return 0
