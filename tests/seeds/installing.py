"""Servers with pinned releases on loopback: backends installed on them, and what is seen of that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.conftest import OpenHouse
from tests.house.exchange import Exchange
from tests.house.releases import Releases, llama_server, tar
from tests.house.server import Server

VULKAN = {"recipe": "llamacpp", "backend": "vulkan"}
NAME = "vulkan.tar.gz"
CHAT = "extra.tiny-chat"


@contextmanager
def released() -> Iterator[Releases]:
    files = {NAME: llama_server("b7869", 400_000), "new.tar.gz": llama_server("b8000"), "bad": tar(("../x", b"x"))}
    with Releases(files) as releases:
        yield releases


def opened(open_house: OpenHouse, releases: Releases, *pins: str, **settings: Any) -> Server:
    pinned = [*pins] or [releases.pin("llamacpp:vulkan", "b7869", NAME)]
    return open_house("tiny-chat", **{"offline": False, "backend_releases": pinned, **settings})


def state(server: Server, recipe: str = "llamacpp", backend: str = "vulkan") -> dict[str, Any]:
    body = server.client.get("/v1/system-info").json()
    return dict(body["recipes"][recipe]["backends"][backend])


def install(server: Server, prefix: str = "/v1", **body: Any) -> Exchange:
    return server.client.post(f"{prefix}/install", {**VULKAN, **body})


def folders(server: Server) -> list[str]:
    home = Path(server.settings.cache_dir) / "backends" / "llamacpp" / "vulkan"
    return sorted(path.name for path in home.glob("*")) if home.exists() else []


def fetched(server: Server) -> int:
    """How many bytes are on the disk for backends, whole or not."""
    home = Path(server.settings.cache_dir) / "backends"
    return sum(path.stat().st_size for path in home.rglob("*") if path.is_file() and path.name != ".lock")


def job(server: Server) -> int:
    """The process that installs."""
    found = [process.pid for process in server.process_tree() if process.runs("workers.jobs.install")]
    return found[0] if found else 0


def check_error(answer: Exchange, status: int, kind: str, *words: str) -> None:
    body = answer.json()
    assert answer.status == status, body
    assert body["status"] == "error"
    assert body["message"] == body["error"]["message"]
    assert body["error"]["type"] == kind
    assert body["error"]["code"]
    for word in words:
        assert word in body["message"]
