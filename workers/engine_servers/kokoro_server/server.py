"""Our server for Kokoro: OpenAI's speech over ONNX Runtime, one text at a time.

``-m FILE`` is the model in ONNX, with ``voices/`` and ``lexicon/`` beside it. Exit codes: see :mod:`workers.engine_servers.onnx_server`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from workers.backends.flag_table import FILE, Flag, FlagTable
from workers.backends.kokoro.descriptor import KEY
from workers.engine_servers import onnx_server
from workers.engine_servers.kokoro_server.http_handler import KokoroHttpServer
from workers.engine_servers.kokoro_server.model import KokoroModel
from workers.engine_servers.kokoro_server.phonemizer import Phonemizer
from workers.engine_servers.onnx_server import ADDRESS, SHARED_FLAGS

_FLAGS: Final = FlagTable(*SHARED_FLAGS, Flag("--lexicon", FILE, "lexicon"), Flag("--espeak", FILE, "espeak"))


def parse(words: list[str]) -> dict[str, Any]:
    """Return the options of a command line; raises :class:`~workers.backends.flag_table.FlagError`."""
    found = onnx_server.parse(_FLAGS, {"lexicon": "", "espeak": ""}, words)
    path = Path(found["model"])
    found["alias"] = found["alias"] or path.stem
    found["lexicon"] = found["lexicon"] or str(path.parent / "lexicon")
    return found


def main(words: list[str]) -> int:
    """Serve until a signal; return the exit code."""
    return onnx_server.run("kokoro-server", KEY, lambda: parse(words), _load)


def _load(given: dict[str, Any], key: str) -> KokoroHttpServer:
    phonemizer = Phonemizer(Path(given["lexicon"]), given["espeak"])
    model = KokoroModel(Path(given["model"]), given["threads"])
    return KokoroHttpServer((ADDRESS, given["port"]), model, phonemizer, given["alias"], key)
