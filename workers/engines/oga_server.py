"""Our server for ONNX Runtime GenAI: OpenAI's chats and completions over its library, one answer at a time.

The command line is ryzenai-server's as far as that goes (``-m DIR --port P --ctx-size N``).  Exit codes: 0 after
SIGTERM (which ends it by itself while it loads), 1 if the model cannot be loaded, 2 for a command line that makes
no sense.  It listens on this machine only, and ends with the process that started it.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from workers.engines.llama_server import wait_for_the_end
from workers.engines.oga_http import Desk, Server
from workers.engines.oga_model import Model, Sampling

KEY: Final = "OGA_API_KEY"
"""The variable with the key that requests must show."""
_LOOPBACK: Final = ("127.0.0.1", "localhost")


class CommandError(ValueError):
    """A command line that makes no sense."""


_FLAGS: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "-m": ("model", str),
    "--model": ("model", str),
    "--host": ("host", str),
    "--port": ("port", int),
    "-p": ("port", int),
    "--ctx-size": ("context", int),
    "-c": ("context", int),
    "--threads": ("threads", int),
    "-t": ("threads", int),
    "--alias": ("alias", str),
    "-a": ("alias", str),
    "--temp": ("temperature", float),
    "--top-p": ("top_p", float),
    "--top-k": ("top_k", int),
}
_DEFAULTS: Final[dict[str, Any]] = {"host": "127.0.0.1", "port": 8080, "context": 0, "threads": 0, "alias": ""}


def parse(words: list[str]) -> dict[str, Any]:
    """Return the options of a command line; raises :class:`CommandError`."""
    found = {**_DEFAULTS, **Sampling()._asdict()}
    rest = iter(words)
    for word in rest:
        if word not in _FLAGS:
            raise CommandError(f"unknown argument {word}")
        name, read = _FLAGS[word]
        text = next(rest, None)
        if text is None:
            raise CommandError(f"{word} needs a value")
        try:
            found[name] = read(text)
        except ValueError:
            raise CommandError(f"{word} cannot be {text}") from None
    if not found.get("model"):
        raise CommandError("-m is missing")
    if found["host"] not in _LOOPBACK:
        raise CommandError("--host must be this machine: 127.0.0.1")
    if min(found["context"], found["threads"]) < 0 or not 0 < found["port"] < 65_536:
        raise CommandError("a number is out of range")
    found["alias"] = found["alias"] or Path(found["model"]).resolve().name
    return found


def main(words: list[str]) -> int:
    """Serve until told to end; return the exit code."""
    try:
        parent = os.pidfd_open(os.getppid())
        given = parse(words)
    except CommandError as problem:
        sys.stderr.write(f"oga-server: {problem}\n")
        return 2
    except ProcessLookupError as problem:
        sys.stderr.write(f"oga-server: {problem}\n")
        return 1
    key = os.environ.pop(KEY, "")
    try:
        sampling = Sampling(given["temperature"], given["top_p"], given["top_k"])
        model = Model(Path(given["model"]), given["threads"], given["context"], sampling)
        server = Server(given["port"], Desk(model, given["alias"], key))
    except Exception as problem:  # noqa: BLE001 - whatever the library says, it is a model that cannot be loaded
        sys.stderr.write(f"oga-server: cannot load the model: {type(problem).__name__}: {problem}\n")
        return 1
    threading.Thread(target=server.serve_forever, daemon=True).start()
    wait_for_the_end(parent)
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # At once: a generation under way has nothing worth tidying, and what the library holds, the kernel takes back.
    os._exit(code)
