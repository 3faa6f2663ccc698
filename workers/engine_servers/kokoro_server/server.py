"""Our server for Kokoro: OpenAI's speech over ONNX Runtime, one text at a time.

``-m FILE`` is the model in ONNX, with ``voices/`` and ``lexicon/`` beside it. Exit codes: 0 after SIGTERM (which ends it at once while it
loads), 1 if the model cannot be loaded, 2 for an invalid command line. It listens on this machine only, and ends with the process
that started it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Final

from workers.backends.flag_table import COUNT, FILE, TEXT, Flag, FlagError, FlagTable
from workers.backends.kokoro.descriptor import KEY
from workers.engine_servers.kokoro_server.http_handler import KokoroHttpServer
from workers.engine_servers.kokoro_server.model import KokoroModel
from workers.engine_servers.kokoro_server.phonemizer import Phonemizer
from workers.engine_servers.shutdown_wait import open_parent_pidfd, wait_for_shutdown

_LOOPBACK: Final = ("127.0.0.1", "localhost")
_FLAGS: Final = FlagTable(
    Flag("-m --model", FILE, "model"),
    Flag("--host", TEXT, "host"),
    Flag("-p --port", COUNT, "port"),
    Flag("-t --threads", COUNT, "threads"),
    Flag("-a --alias", TEXT, "alias"),
    Flag("--lexicon", FILE, "lexicon"),
    Flag("--espeak", FILE, "espeak"),
)
_DEFAULTS: Final[dict[str, Any]] = {
    "host": "127.0.0.1",
    "port": 8080,
    "threads": 0,
    "alias": "",
    "lexicon": "",
    "espeak": "",
}


def parse(words: list[str]) -> dict[str, Any]:
    """Return the options of a command line; raises :class:`~workers.backends.flag_table.FlagError`."""
    found: dict[str, Any] = {**_DEFAULTS, **dict(_FLAGS.parse(words))}
    if not found.get("model"):
        raise FlagError("-m is missing")
    if found["host"] not in _LOOPBACK:
        raise FlagError("--host must be this machine: 127.0.0.1")
    if found["threads"] < 0 or not 0 < found["port"] < 65_536:
        raise FlagError("a number is out of range")
    path = Path(found["model"])
    found["alias"] = found["alias"] or path.stem
    found["lexicon"] = found["lexicon"] or str(path.parent / "lexicon")
    return found


def main(words: list[str]) -> int:
    """Serve until a signal; return the exit code."""
    try:
        parent = open_parent_pidfd()
        given = parse(words)
    except (FlagError, ProcessLookupError) as problem:
        sys.stderr.write(f"kokoro-server: {problem}\n")
        return 2 if isinstance(problem, FlagError) else 1
    key = os.environ.pop(KEY, "")
    try:
        phonemizer = Phonemizer(Path(given["lexicon"]), given["espeak"])
        model = KokoroModel(Path(given["model"]), given["threads"])
        server = KokoroHttpServer(("127.0.0.1", given["port"]), model, phonemizer, given["alias"], key)
    except Exception as problem:  # noqa: BLE001 - any error here means that the model cannot be loaded
        sys.stderr.write(f"kokoro-server: cannot load the model: {type(problem).__name__}: {problem}\n")
        return 1
    wait_for_shutdown(parent, server.open)
    return 0
