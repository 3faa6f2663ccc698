"""A Hugging Face hub on loopback, as much of it as the real ``huggingface_hub`` asks for, with faults to order.

with Hub({"owner/repo": {"model-Q4_0.gguf": b"…"}}) as hub:
    environ["HF_ENDPOINT"] = hub.url
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Self
from urllib.parse import unquote, urlsplit

PIECE = 64 * 1024
_LIST = re.compile(r"/api/models/([^/]+/[^/]+?)(?:/revision/[^/]+)?")
_FILE = re.compile(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)")


class Hub:
    """The hub: what it holds, what it was asked, and how it misbehaves."""

    def __init__(self, repositories: dict[str, dict[str, bytes]]) -> None:
        self.repositories = repositories
        self.break_after = 0
        """Each first transfer of a file is cut after so many bytes; 0: never."""
        self.hold_after = 0
        """Transfers stop after so many bytes until ``released`` is set; 0: never."""
        self.released = threading.Event()
        self.holding = threading.Event()
        self.wrong_sha = False
        self.token = ""
        """What ``HF_TOKEN`` must be, if anything."""
        self.busy = 0
        """So many requests are answered 429 first."""
        self.status = 0
        """Answer everything with this."""
        self.transfers: list[tuple[str, int]] = []
        """File and first byte of every transfer."""
        self.requests = 0
        self.cut: set[str] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": self}))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def etag(self, data: bytes) -> str:
        return "0" * 64 if self.wrong_sha else hashlib.sha256(data).hexdigest()


def revision(repo: str) -> str:
    """Return the commit of a repository."""
    return hashlib.sha1(repo.encode(), usedforsecurity=False).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    hub: ClassVar[Hub]
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.hub.requests += 1
        path = unquote(urlsplit(self.path).path)
        if self.hub.status:
            self._json(self.hub.status, {"error": "ordered"})
        elif self.hub.busy > 0:
            self.hub.busy -= 1
            self._json(HTTPStatus.TOO_MANY_REQUESTS, {"error": "busy"}, {"Retry-After": "0"})
        elif self.hub.token and self.headers.get("Authorization") != f"Bearer {self.hub.token}":
            self._json(HTTPStatus.UNAUTHORIZED, {"error": "gated"}, {"X-Error-Code": "GatedRepo"})
        elif listed := _LIST.fullmatch(path):
            self._list(listed[1])
        elif wanted := _FILE.fullmatch(path):
            self._file(wanted[1], wanted[2])
        else:
            self._json(HTTPStatus.NOT_FOUND, {"error": "no such page"})

    def _json(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(value).encode()
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
            return
        siblings = [
            {
                "rfilename": name,
                "size": len(data),
                "blobId": revision(name),
                "lfs": {"sha256": self.hub.etag(data), "size": len(data), "pointerSize": 134},
            }
            for name, data in files.items()
        ]
        about = {"_id": "0", "id": repo, "modelId": repo, "sha": revision(repo), "private": False}
        self._json(HTTPStatus.OK, {**about, "tags": [], "downloads": 0, "siblings": siblings})

    def _file(self, repo: str, name: str) -> None:
        data = self.hub.repositories.get(repo, {}).get(name)
        if data is None:
            self._json(HTTPStatus.NOT_FOUND, {"error": "no"}, {"X-Error-Code": "EntryNotFound"})
            return
        asked = re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(asked[1]) if asked else 0
        self.send_response(HTTPStatus.PARTIAL_CONTENT if asked else HTTPStatus.OK)
        etag = f'"{self.hub.etag(data)}"'
        for header, text in {
            "ETag": etag,
            "X-Linked-Etag": etag,
            "X-Linked-Size": str(len(data)),
            "X-Repo-Commit": revision(repo),
            "Accept-Ranges": "bytes",
            "Content-Length": str(len(data) - start),
        }.items():
            self.send_header(header, text)
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
