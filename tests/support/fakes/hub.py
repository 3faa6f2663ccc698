"""A Hugging Face hub on loopback, as much of it as the real ``huggingface_hub`` asks for, with faults to order.

with Hub({"owner/repo": {"model-Q4_0.gguf": gguf(1000)}}) as hub:
    environ["HF_ENDPOINT"] = hub.url
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import struct
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Self
from urllib.parse import unquote, urlsplit

PIECE = 64 * 1024
_LIST = re.compile(r"/api/models/([^/]+/[^/]+?)(?:/revision/[^/]+)?")
_FILE = re.compile(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)")


def gguf(size: int, seed: int = 1) -> bytes:
    """Return the smallest complete GGUF file, followed by enough noise to make ``size`` bytes."""
    head = struct.pack("<4sIQQ", b"GGUF", 3, 0, 0)
    return head + random.Random(seed).randbytes(max(0, size - len(head)))


class Hub:
    """The hub: its files, the requests that it got, and its faults."""

    def __init__(self, repositories: dict[str, dict[str, bytes]]) -> None:
        self.repositories = repositories
        self.plain: set[str] = set()
        """Files that are kept in git itself, so that their digest is git's."""
        # What it wants
        self.token = ""
        """The ``HF_TOKEN`` that all requests need, if any."""
        self.gated: dict[str, str] = {}
        """Repository → the ``HF_TOKEN`` that its files need; its listing is public."""
        # How it misbehaves
        self.rate = 0
        """Bytes a second of each transfer; 0: as fast as it goes."""
        self.break_after = 0
        """Each first transfer of a file is cut after this many bytes; 0: never."""
        self.hold_after = 0
        """Transfers stop after this many bytes until ``released`` is set; 0: never."""
        self.released = threading.Event()
        self.holding = threading.Event()
        self.no_ranges = False
        """Send a file from its beginning, whatever part was requested."""
        self.wrong_sha = False
        self.wrong_size = 0
        """Report every file as this many bytes larger."""
        self.garbage = b""
        """The content to send instead of every listing, with the header of gzip if it is gzip."""
        self.elsewhere = False
        """Redirect every transfer to :attr:`cdn`, another host."""
        self.busy = 0
        """The first requests, as many as this, are answered with 429."""
        self.busy_files = 0
        """Likewise, of transfers, with :attr:`busy_status`."""
        self.busy_status = 429
        self.retry_after = "0"
        self.status = 0
        """Answer everything with this."""
        # What it saw
        self.transfers: list[tuple[str, int]] = []
        """File and first byte of every transfer."""
        self.requests = 0
        self.cut: set[str] = set()
        self.tokens_elsewhere: list[str] = []
        """``Authorization`` of every request to the other host."""
        self._servers = [self._serve("127.0.0.1"), self._serve("127.0.0.2")]
        self._threads = [
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True) for server in self._servers
        ]

    def _serve(self, host: str) -> ThreadingHTTPServer:
        server = ThreadingHTTPServer((host, 0), type("Handler", (_HubHandler,), {"hub": self}))
        server.daemon_threads = True
        return server

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._servers[0].server_port}"

    @property
    def cdn(self) -> str:
        return f"http://127.0.0.2:{self._servers[1].server_port}"

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        for server, thread in zip(self._servers, self._threads, strict=True):
            server.shutdown()
            server.server_close()
            thread.join(5)

    def etag(self, name: str, data: bytes) -> str:
        if name in self.plain:
            return (
                "0" * 40
                if self.wrong_sha
                else hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
            )
        return "0" * 64 if self.wrong_sha else hashlib.sha256(data).hexdigest()


def revision(repo: str) -> str:
    """Return the commit of a repository."""
    return hashlib.sha1(repo.encode(), usedforsecurity=False).hexdigest()


class _HubHandler(BaseHTTPRequestHandler):
    hub: ClassVar[Hub]
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.hub.requests += 1
        path = unquote(urlsplit(self.path).path)
        host = str(self.headers.get("Host"))
        if self.hub.cdn.endswith(host):
            self.hub.tokens_elsewhere.append(self.headers.get("Authorization", ""))
            self._file(*path.removeprefix("/cdn/").split(":", 1))
        elif self.hub.status:
            self._json(self.hub.status, {"error": "ordered"})
        elif self.hub.busy > 0:
            self.hub.busy -= 1
            self._busy()
        elif self.hub.token and not self._has(self.hub.token):
            self._json(HTTPStatus.UNAUTHORIZED, {"error": "gated"}, {"X-Error-Code": "GatedRepo"})
        elif listed := _LIST.fullmatch(path):
            self._list(listed[1])
        elif wanted := _FILE.fullmatch(path):
            self._resolve(wanted[1], wanted[2])
        else:
            self._json(HTTPStatus.NOT_FOUND, {"error": "no such page"})

    def _has(self, token: str) -> bool:
        return self.headers.get("Authorization") == f"Bearer {token}"

    def _busy(self, status: int = HTTPStatus.TOO_MANY_REQUESTS) -> None:
        self._json(status, {"error": "busy"}, {"Retry-After": self.hub.retry_after})

    def _json(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        self._bytes(status, json.dumps(value).encode(), headers)

    def _bytes(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, text in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _list(self, repo: str) -> None:
        files = self.hub.repositories.get(repo)
        if files is None:
            self._json(HTTPStatus.NOT_FOUND, {"error": "no"}, {"X-Error-Code": "RepoNotFound"})
        elif self.hub.garbage:
            packed = self.hub.garbage.startswith(b"\x1f\x8b")
            self._bytes(HTTPStatus.OK, self.hub.garbage, {"Content-Encoding": "gzip"} if packed else None)
        else:
            siblings = [self._sibling(name, data) for name, data in files.items()]
            about = {"_id": "0", "id": repo, "modelId": repo, "sha": revision(repo), "private": False}
            self._json(HTTPStatus.OK, {**about, "tags": [], "downloads": 0, "siblings": siblings})

    def _sibling(self, name: str, data: bytes) -> dict[str, Any]:
        size, etag = len(data) + self.hub.wrong_size, self.hub.etag(name, data)
        if name in self.hub.plain:
            return {"rfilename": name, "size": size, "blobId": etag}
        lfs = {"sha256": etag, "size": size, "pointerSize": 134}
        return {"rfilename": name, "size": size, "blobId": revision(name), "lfs": lfs}

    def _resolve(self, repo: str, name: str) -> None:
        data = self.hub.repositories.get(repo, {}).get(name)
        if data is None:
            self._json(HTTPStatus.NOT_FOUND, {"error": "no"}, {"X-Error-Code": "EntryNotFound"})
        elif repo in self.hub.gated and not self._has(self.hub.gated[repo]):
            self._json(HTTPStatus.UNAUTHORIZED, {"error": "gated"}, {"X-Error-Code": "GatedRepo"})
        elif self.hub.busy_files > 0:
            self.hub.busy_files -= 1
            self._busy(self.hub.busy_status)
        elif self.hub.elsewhere:
            place = f"{self.hub.cdn}/cdn/{repo}:{name}"
            self._json(HTTPStatus.FOUND, {}, {"Location": place, **self._facts(repo, name, data)})
        else:
            self._file(repo, name)

    def _facts(self, repo: str, name: str, data: bytes) -> dict[str, str]:
        etag = f'"{self.hub.etag(name, data)}"'
        linked = {} if name in self.hub.plain else {"X-Linked-Etag": etag, "X-Linked-Size": str(len(data))}
        return {"ETag": etag, "X-Repo-Commit": revision(repo), **linked}

    def _file(self, repo: str, name: str) -> None:
        data = self.hub.repositories[repo][name]
        asked = None if self.hub.no_ranges else re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(asked[1]) if asked else 0
        if asked and start >= len(data):
            body = {"Content-Range": f"bytes */{len(data)}"}
            self._json(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, {}, body)
            return
        self.send_response(HTTPStatus.PARTIAL_CONTENT if asked else HTTPStatus.OK)
        for header, text in {**self._facts(repo, name, data), "Accept-Ranges": "bytes"}.items():
            self.send_header(header, text)
        self.send_header("Content-Length", str(len(data) - start))
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.end_headers()
        if self.command != "HEAD":
            self.hub.transfers.append((name, start))
            self._send(name, data[start:])

    def _send(self, name: str, data: bytes) -> None:
        limit = self.hub.break_after if self.hub.break_after and name not in self.hub.cut else 0
        for place in range(0, len(data), PIECE):
            if limit and place >= limit:
                self.hub.cut.add(name)
                self.close_connection = True
                return
            if self.hub.hold_after and place >= self.hub.hold_after:
                self.wfile.flush()
                self.hub.holding.set()
                self.hub.released.wait(30)
            try:
                self.wfile.write(data[place : place + PIECE])
            except OSError:
                self.close_connection = True
                return
            if self.hub.rate:
                time.sleep(PIECE / self.hub.rate)
