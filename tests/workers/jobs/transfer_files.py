"""Files that one node sends and another one fetches, and a sender in this process."""

from __future__ import annotations

import hashlib
import http.client
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from protocol.messages.model_transfer import FileRoot, FileSender, SharedFile, TransferFile
from workers.jobs.model_transfer.file_server import FileServer

KEY = "k" * 64
HOST = "127.0.0.1"


def content(size: int, seed: int = 1) -> bytes:
    """Return bytes that do not repeat."""
    return hashlib.shake_128(b"%d" % seed).digest(size)


def written(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    # Not now: a copy would have this time by chance.
    os.utime(path, ns=(1_700_000_000_123_456_789, 1_700_000_000_123_456_789))
    return path


def file_id(path: Path) -> str:
    return hashlib.sha256(str(path).encode()).hexdigest()[:32]


def transfer_file(path: Path, name: str = "", root: FileRoot = FileRoot.OTHER, blob: str = "") -> TransferFile:
    """Return a file as the head registers it; without a blob it has a digest on record."""
    facts, place = path.stat(), name or f"d1/{path.name}"
    digest = "" if blob else hashlib.sha256(path.read_bytes()).hexdigest()
    return TransferFile(file_id(path), str(path), root, place, facts.st_size, facts.st_mtime_ns, blob, digest)


def shared(file: TransferFile, path: Path | None = None) -> SharedFile:
    return SharedFile(file.id, str(path or file.path), file.size, file.mtime_ns)


class HubFile(NamedTuple):
    """A file in the layout of the hub's cache."""

    path: Path
    file: TransferFile


def hub_file(hub: Path, data: bytes, name: str = "tiny.gguf") -> HubFile:
    """Make one, a link to a blob with the name of its sha256."""
    repository = hub / "models--shop--tiny"
    digest = hashlib.sha256(data).hexdigest()
    written(repository / "blobs" / digest, data)
    path = repository / "snapshots" / "abc" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(f"../../blobs/{digest}")
    return HubFile(path, transfer_file(path, f"models--shop--tiny/snapshots/abc/{name}", FileRoot.HUB, digest))


@contextmanager
def serving(server: FileServer) -> Iterator[FileServer]:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@contextmanager
def sender(*files: SharedFile, node: str = "head") -> Iterator[FileSender]:
    """Send these files."""
    server = FileServer(HOST, KEY)
    server.files = {file.id: file for file in files}
    with serving(server):
        yield FileSender(node, server.address)


def ask(
    address: str, path: str, key: str = KEY, method: str = "GET", **headers: str
) -> tuple[int, bytes, http.client.HTTPMessage]:
    """Ask a sender; return status, body and headers."""
    connection = http.client.HTTPConnection(address, timeout=10)
    try:
        connection.request(method, path, headers={"Authorization": f"Bearer {key}", **headers})
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers
    finally:
        connection.close()
