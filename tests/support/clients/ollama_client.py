"""The ``ollama`` package as it is, imported only where it is needed: that takes a while in every test process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.server import LemonbusServer

if TYPE_CHECKING:
    import ollama


def ollama_client(server: LemonbusServer) -> ollama.Client:
    """Return a client that waits 30 s at most; the caller closes it."""
    import ollama  # noqa: PLC0415 - see above

    return ollama.Client(host=f"http://127.0.0.1:{server.port}", timeout=30)
