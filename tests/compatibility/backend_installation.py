"""Servers with pinned releases on loopback: installs backends on them, and shows the results."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.clients.http_exchange import HttpExchange
from tests.support.fakes.release_server import ReleaseServer, llama_server, tar
from tests.support.server import LemonbusServer

VULKAN = {"recipe": "llamacpp", "backend": "vulkan"}
CUDA = {"recipe": "llamacpp", "backend": "cuda"}
NAME = "vulkan.tar.gz"
RELEASE = "b7869"
"""The version of :data:`NAME`."""
CHAT = "extra.tiny-chat"


@contextmanager
def release_server_with_pins() -> Iterator[ReleaseServer]:
    files = {NAME: llama_server(RELEASE, 400_000), "new.tar.gz": llama_server("b8000"), "bad": tar(("../x", b"x"))}
    with ReleaseServer(files) as releases:
        yield releases


def state(server: LemonbusServer, recipe: str = "llamacpp", backend: str = "vulkan") -> dict[str, Any]:
    body = server.client.get("/v1/system-info").json()
    return dict(body["recipes"][recipe]["backends"][backend])


def install(server: LemonbusServer, prefix: str = "/v1", **body: Any) -> HttpExchange:
    return server.client.post(f"{prefix}/install", {**VULKAN, **body})


def folders(server: LemonbusServer) -> list[str]:
    home = Path(server.settings.cache_dir) / "backends" / "llamacpp" / "vulkan"
    return sorted(path.name for path in home.glob("*")) if home.exists() else []


def bytes_on_disk(server: LemonbusServer) -> int:
    """Return how many bytes of backends, complete or not, are on the disk."""
    home = Path(server.settings.cache_dir) / "backends"
    return sum(path.stat().st_size for path in home.rglob("*") if path.is_file() and path.name != ".lock")


def install_job_pid(server: LemonbusServer) -> int:
    """The process that installs."""
    found = [process.pid for process in server.process_tree() if process.runs("workers.jobs.install")]
    return found[0] if found else 0


def check_error(answer: HttpExchange, status: int, kind: str, *words: str) -> None:
    body = answer.json()
    assert answer.status == status, body
    assert body["status"] == "error"
    assert body["message"] == body["error"]["message"]
    assert body["error"]["type"] == kind
    assert body["error"]["code"]
    for word in words:
        assert word in body["message"]
