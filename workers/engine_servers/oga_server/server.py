"""Our server for ONNX Runtime GenAI: OpenAI's chats and completions over its library, one answer at a time.

The command line includes ryzenai-server's (``-m DIR --port P --ctx-size N``). Exit codes: see :mod:`workers.engine_servers.onnx_server`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from workers.backends.flag_table import COUNT, INTEGER, NUMBER, Flag, FlagError, FlagTable
from workers.engine_servers import onnx_server
from workers.engine_servers.oga_server.http_handler import OgaHttpServer
from workers.engine_servers.oga_server.model import OgaModel, OgaSampling
from workers.engine_servers.onnx_server import ADDRESS, SHARED_FLAGS

KEY: Final = "OGA_API_KEY"
"""The environment variable with the key that requests need."""
_FLAGS: Final = FlagTable(
    *SHARED_FLAGS,
    Flag("-c --ctx-size", COUNT, "context"),
    Flag("--temp", NUMBER, "temperature"),
    Flag("--top-p", NUMBER, "top_p"),
    Flag("--top-k", INTEGER, "top_k"),
)


def parse(words: list[str]) -> dict[str, Any]:
    """Return the options of a command line; raises :class:`~workers.backends.flag_table.FlagError`."""
    found = onnx_server.parse(_FLAGS, {"context": 0, **OgaSampling()._asdict()}, words)
    if found["context"] < 0:
        raise FlagError("a number is out of range")
    found["alias"] = found["alias"] or Path(found["model"]).resolve().name
    return found


def main(words: list[str]) -> int:
    """Serve until a signal; return the exit code."""
    return onnx_server.run("oga-server", KEY, lambda: parse(words), _load)


def _load(given: dict[str, Any], key: str) -> OgaHttpServer:
    sampling = OgaSampling(given["temperature"], given["top_p"], given["top_k"])
    model = OgaModel(Path(given["model"]), given["threads"], given["context"], sampling)
    return OgaHttpServer((ADDRESS, given["port"]), model, given["alias"], key)
