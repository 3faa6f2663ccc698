"""A release server on loopback: files by name, with faults to order, and the archives it hands out.

with Releases({"llama.tar.gz": archive(...)}) as releases:
    settings = {"backend_releases": [releases.pin("llamacpp:vulkan", "b1", "llama.tar.gz")]}
"""

from __future__ import annotations

import hashlib
import io
import re
import sys
import tarfile
import threading
import zipfile
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar, Self

PIECE = 16 * 1024
ROOT = Path(__file__).parents[3]


class ReleaseServer:
    """Its files, the requests that it got, and its faults."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.break_after = 0
        """The first transfer of each file is cut after this many bytes; 0: never."""
        self.hold_after = 0
        """Transfers stop after this many bytes until ``released`` is set; 0: never."""
        self.released = threading.Event()
        self.holding = threading.Event()
        self.statuses: list[int] = []
        """The statuses of the first requests."""
        self.claims = 0
        """The length that the server reports, if it is not the true one."""
        self.ranges = True
        """Whether the server can send a part of a file."""
        self.requests: list[tuple[str, int]] = []
        """Path and first byte of each request."""
        self._cut: set[str] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_ReleaseHandler,), {"releases": self}))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def pin(self, backend: str, version: str, name: str, digest: str = "", url: str = "") -> str:
        """Return an item of the setting ``backend_releases``."""
        return f"{backend}@{version}={url or self.url}/{name}#sha256={digest or sha256(self.files[name])}"

    def cut(self, name: str) -> bool:
        """Return whether this transfer is one that breaks off."""
        first = bool(self.break_after) and name not in self._cut
        self._cut.add(name)
        return first

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


class _ReleaseHandler(BaseHTTPRequestHandler):
    releases: ClassVar[ReleaseServer]

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        releases = self.releases
        name = self.path.lstrip("/")
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "")) if releases.ranges else None
        start = int(asked[1]) if asked else 0
        releases.requests.append((name, start))
        data = releases.files.get(name)
        if releases.statuses:
            self._end(releases.statuses.pop(0))
        elif name.startswith("elsewhere/"):
            self.send_response(HTTPStatus.FOUND)
            self.send_header("Location", "/" + name.removeprefix("elsewhere/"))
            self.end_headers()
        elif data is None:
            self._end(HTTPStatus.NOT_FOUND)
        elif asked and start >= len(data):
            self._end(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, ("Content-Range", f"bytes */{len(data)}"))
        else:
            self._send(name, data, start, ranged=bool(asked))

    def _end(self, status: int, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for key, value in (*headers, ("Retry-After", "0"), ("Content-Length", "0")):
            self.send_header(key, value)
        self.end_headers()

    def _send(self, name: str, data: bytes, start: int, *, ranged: bool) -> None:
        releases = self.releases
        self.send_response(HTTPStatus.PARTIAL_CONTENT if ranged else HTTPStatus.OK)
        self.send_header("Content-Length", str(releases.claims or len(data) - start))
        if ranged:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.end_headers()
        limit = releases.break_after if releases.cut(name) else 0
        for place in range(start, len(data), PIECE):
            if limit and place - start >= limit:
                return
            if releases.hold_after and place >= releases.hold_after:
                self.wfile.flush()
                releases.holding.set()
                releases.released.wait(30)
            try:
                self.wfile.write(data[place : place + PIECE])
            except OSError:
                return


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def tar(*members: tuple[str, bytes | str], mode: int = 0o755) -> bytes:
    """Return a ``tar.gz``; a member whose content is text is a symbolic link to it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.mode = mode
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                archive.addfile(info)
            else:
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def zipped(*members: tuple[str, bytes | str]) -> bytes:
    """Return a zip; a member whose content is text is a symbolic link to it."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in members:
            info = zipfile.ZipInfo(name)
            link = isinstance(content, str)
            info.external_attr = (0o120777 if link else 0o100644) << 16
            archive.writestr(info, content)
    return out.getvalue()


def llama_server(version: str = "b1", padding: int = 0) -> bytes:
    """Return an archive like those of llama.cpp's releases; its ``llama-server`` runs the engine of the tests' Python."""
    script = f"""#!/bin/sh
# {version}
export PYTHONPATH={ROOT}
exec {sys.executable} -m workers.engine_servers.llama_server "$@"
"""
    noise = hashlib.shake_128(version.encode()).digest(padding)
    return tar(
        (f"llama-{version}/llama-server", script.encode()),
        (f"llama-{version}/libllama.so.0", noise),
        (f"llama-{version}/libllama.so", "libllama.so.0"),
    )
