"""The client process of the benchmarks. It uses raw sockets and a selector, so that it takes little time from the server.

``python -m tests.benchmarks.load_generator`` reads one :class:`LoadJob` as JSON on stdin and writes one :class:`LoadResult` on stdout.
"""

from __future__ import annotations

import json
import selectors
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from tests.benchmarks.request_forms import FORMS

_END = b"\r\n0\r\n\r\n"
_LIMIT = 120.0


class LoadJob(msgspec.Struct):
    """``clients`` at once, each with ``rounds`` requests one after the other, every request on a new connection."""

    port: int
    model: str
    clients: int
    rounds: int
    tokens: int
    stream: bool
    form: str = "chat/completions"
    """One of ``request_forms.FORMS``."""
    key: str = ""
    """The API key that requests have, if any."""


class LoadResult(msgspec.Struct):
    """Times in seconds. ``gaps`` are between tokens: those that came in one piece have gaps of zero."""

    seconds: float = 0.0
    tokens: int = 0
    pieces: int = 0
    """Reads that brought tokens."""
    requests: int = 0
    broken: int = 0
    first: list[float] = []
    gaps: list[float] = []
    whole: list[float] = []


class LoadClient:
    """One of the clients: its present connection and the received bytes."""

    def __init__(self, job: LoadJob, request: bytes, result: LoadResult) -> None:
        self.job, self.request, self.result = job, request, result
        self.left = job.rounds
        self.token = FORMS[job.form].token
        self.socket = socket.socket()
        self.socket.close()

    def begin(self, selector: selectors.BaseSelector) -> None:
        """Connect and ask."""
        self.left -= 1
        self.tokens, self.tail, self.body = 0, b"", b""
        self.started = self.latest = time.perf_counter()
        self.socket = socket.socket()
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.connect(("127.0.0.1", self.job.port))
        self.socket.sendall(self.request)
        self.socket.setblocking(False)
        selector.register(self.socket, selectors.EVENT_READ, self)

    def read(self) -> bool:
        """Read what has arrived; return whether the response has ended."""
        data = self.socket.recv(1 << 18)
        now = time.perf_counter()
        if not data:
            self.result.broken += 1
            return True
        if self.job.stream:
            seen = self.tail + data
            if count := seen.count(self.token):
                self._count(count, now)
            self.tail = seen[1 - len(self.token) :]  # perhaps the beginning of a token, never a whole one
            ended = seen.endswith(_END)
        else:
            self.body += data
            ended = self._has_all()
        if ended:
            self.result.whole.append(now - self.started)
            self.result.requests += 1
            if self.job.stream and self.tokens != self.job.tokens:
                self.result.broken += 1
        return ended

    def _count(self, count: int, now: float) -> None:
        result = self.result
        result.pieces += 1
        result.tokens += count
        if self.tokens == 0:
            result.first.append(now - self.started)
        else:
            result.gaps.append(now - self.latest)
        result.gaps += [0.0] * (count - 1)
        self.tokens += count
        self.latest = now

    def _has_all(self) -> bool:
        head, found, body = self.body.partition(b"\r\n\r\n")
        if not found:
            return False
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        if len(body) < int(length.split(b":")[1]):
            return False
        self.result.broken += not head.startswith(b"HTTP/1.1 200")
        return True


def run(job: LoadJob) -> LoadResult:
    """Do the job in this process."""
    request = _request(job)
    result = LoadResult()
    started = time.perf_counter()
    with selectors.DefaultSelector() as selector:
        for _ in range(job.clients):
            LoadClient(job, request, result).begin(selector)
        while selector.get_map():
            if time.perf_counter() - started > _LIMIT:
                raise TimeoutError(f"not done within {_LIMIT:g} s")
            for key, _ in selector.select(1.0):
                client: LoadClient = key.data
                if client.read():
                    selector.unregister(client.socket)
                    client.socket.close()
                    if client.left:
                        client.begin(selector)
    result.seconds = time.perf_counter() - started
    return result


def _request(job: LoadJob) -> bytes:
    form = FORMS[job.form]
    key = f"Authorization: Bearer {job.key}\r\n" if job.key else ""
    head = f"{form.path} HTTP/1.1\r\nHost: 127.0.0.1:{job.port}\r\n{key}"
    if form.body is None:
        return f"GET {head}\r\n".encode()
    data = json.dumps(form.body(job.model, job.tokens, job.stream)).encode()
    return f"POST {head}Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


def run_in_process(job: LoadJob) -> LoadResult:
    """Do the job in a separate process."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.load_generator"],
        input=msgspec.json.encode(job),
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        timeout=_LIMIT + 10,
        check=True,
    )
    return msgspec.json.decode(done.stdout, type=LoadResult)


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(run(msgspec.json.decode(sys.stdin.buffer.read(), type=LoadJob))))
