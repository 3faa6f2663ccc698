"""HTTP in front of one OGA model: who may ask, whose turn it is, and answers that end when nobody listens any more."""

from __future__ import annotations

import hmac
import itertools
import json
import os
import select
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from workers.engines import oga_request
from workers.engines.oga_answers import Cost, Form, Likely, failed
from workers.engines.oga_model import Generation, Model
from workers.engines.oga_request import RefusedError, Request
from workers.engines.oga_words import Cutter

LARGEST_BODY: Final = 64 * 1024 * 1024
MOST_WAITING: Final = 16
"""Requests that work or wait for their turn; more are told to come again."""
IDLE_S: Final = 60.0
"""How long a connection may be silent, or a reader take nothing."""
LOOK_S: Final = 0.1
"""How often one that waits for its turn is asked whether it is still there."""


class Desk:
    """The model, and whose turn it is."""

    def __init__(self, model: Model, alias: str, key: str) -> None:
        """``key``: what requests must show, empty for nothing."""
        self.model, self.alias = model, alias
        self._key = key.encode()
        self._turn = threading.Lock()
        self._places = threading.Semaphore(MOST_WAITING)
        self._numbers = itertools.count(1)
        self.working = False

    def admits(self, shown: str) -> bool:
        """Return whether an Authorization header has the key."""
        return not self._key or hmac.compare_digest(shown.removeprefix("Bearer ").encode(), self._key)

    def form(self, chat: bool) -> Form:
        """Return how the next answer is written."""
        number = f"{os.getpid():x}-{next(self._numbers)}"
        return Form(chat, self.alias, number, int(time.time()), self.model.build)

    @contextmanager
    def turn(self, gone: Callable[[], bool]) -> Iterator[None]:
        """Wait for the turn and have it; raises :class:`RefusedError` if too many wait, OSError if ``gone`` says so."""
        if not self._places.acquire(blocking=False):
            raise RefusedError("too many requests wait", 503, "unavailable_error")
        try:
            while not self._turn.acquire(timeout=LOOK_S):
                if gone():
                    raise BrokenPipeError
            self.working = True
            try:
                yield
            finally:
                self.working = False
                self._turn.release()
        finally:
            self._places.release()

    def told(self, path: str) -> dict[str, Any] | None:
        """Return what a GET is answered with, None if there is nothing of that name."""
        context = self.model.context
        answers: dict[str, dict[str, Any]] = {
            "/health": {"status": "ok"},
            "/v1/models": {"object": "list", "data": [{"id": self.alias, "object": "model", "owned_by": "oga"}]},
            "/props": {
                "total_slots": 1,
                "default_generation_settings": {"n_ctx": context},
                "build_info": self.model.build,
            },
            "/slots": {"slots": [{"id": 0, "n_ctx": context, "is_processing": self.working}]},
        }
        return answers.get(path)


class Server(ThreadingHTTPServer):
    """Listens on the loopback, a thread for each connection."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, port: int, desk: Desk) -> None:
        """Listen at once; raises OSError."""
        self.desk = desk
        super().__init__(("127.0.0.1", port), Handler)

    def server_bind(self) -> None:
        """Bind without asking what this machine is called."""
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a connection that broke."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "oga-server", ""
    disable_nagle_algorithm = True
    timeout = IDLE_S

    def log_message(self, *_: Any) -> None:
        """Whoever asks knows what was asked."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what the standard library refuses, in our words."""
        del explain
        self.close_connection = True
        self._fail(RefusedError(message or "the request makes no sense", 405 if code == 501 else int(code)))

    def _fail(self, problem: RefusedError) -> None:
        self._answer(problem.status, json.dumps({"error": problem.body}).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    @property
    def _admitted(self) -> bool:
        if self.server.desk.admits(self.headers.get("Authorization", "")):
            return True
        self.close_connection = True
        self._fail(RefusedError("Invalid API Key", 401, "authentication_error"))
        return False

    def do_GET(self) -> None:
        """Tell of health, model, properties or slots."""
        path = self.path.partition("?")[0]
        if path != "/health" and not self._admitted:
            return
        said = self.server.desk.told(path)
        if said is None:
            self._fail(RefusedError("File Not Found", 404, "not_found_error"))
        else:
            self._answer(200, json.dumps(said.get("slots", said)).encode())

    def do_HEAD(self) -> None:
        """Tell the same without a body."""
        self.do_GET()

    def do_POST(self) -> None:
        """Answer a chat or a completion."""
        if not self._admitted:
            return
        try:
            body = self._body()
            chat = self._is_chat()
            Talk(self, self.server.desk, oga_request.read(body, chat), chat).answer()
        except RefusedError as problem:
            self._fail(problem)
        except OSError:
            raise
        except Exception as problem:  # noqa: BLE001 - whatever the library says, its caller gets an answer
            self._fail(wrong(problem))

    def _is_chat(self) -> bool:
        path = self.path.partition("?")[0]
        if path not in ("/v1/chat/completions", "/v1/completions"):
            raise RefusedError("File Not Found", 404, "not_found_error")
        return path == "/v1/chat/completions"

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            self.close_connection = True
            raise RefusedError("the length of the body is not known", 411)
        if int(length[:12]) > LARGEST_BODY:
            self.close_connection = True
            raise RefusedError("the body is too large", 413)
        return self.rfile.read(int(length))

    def gone(self) -> bool:
        """Return whether whoever asked has hung up."""
        look = select.poll()
        look.register(self.connection, select.POLLIN)
        try:
            return bool(look.poll(0)) and not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def begin_stream(self) -> None:
        """Send the head of a stream."""
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Connection", "close")
        self.end_headers()

    def send(self, data: bytes) -> None:
        """Send a part of a stream; nothing is its end."""
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def end_whole(self, body: bytes) -> None:
        """Send a whole answer."""
        self._answer(200, body)


class Talk:
    """One answer, whole or streamed."""

    def __init__(self, door: Handler, desk: Desk, request: Request, chat: bool) -> None:
        """Nothing is sent yet."""
        self._door, self._desk, self._request = door, desk, request
        self._form = desk.form(chat)
        self._cutter = Cutter(request.stops)
        self._streams = bool(request.stream)
        self._begun = False

    def answer(self) -> None:
        """Answer; raises :class:`RefusedError` and the library's errors only while nothing was sent."""
        tokens = self._desk.model.tokens_of(self._request)
        with self._desk.turn(self._door.gone):
            try:
                self._speak(self._desk.model.begin(tokens, self._request), len(tokens))
            except OSError:
                raise
            except Exception as problem:
                if not self._begun:
                    raise
                self._door.send(failed(wrong(problem).body))
                self._door.send(b"")

    def _speak(self, generation: Generation, size: int) -> None:
        began = time.perf_counter()
        for processed in generation.read():
            self._stay()
            if self._streams and self._request.return_progress:
                self._show(self._form.progress(size, processed, round((time.perf_counter() - began) * 1000)))
        read = time.perf_counter()
        said: list[str] = []
        likely: Likely = []
        for piece in generation.speak():
            self._stay()
            self._say(self._cutter.feed(piece), generation, said, likely)
            if self._cutter.found:
                break
        reason = "stop" if self._cutter.found else generation.reason
        self._say(self._cutter.rest(), generation, said, likely)
        cost = Cost(size, generation.count, read - began, time.perf_counter() - read)
        if self._streams:
            self._show(self._form.ending(reason, cost, self._request.usage))
            self._door.send(b"")
        else:
            asked = self._request.likely is not None
            self._door.end_whole(self._form.whole("".join(said), reason, cost, likely if asked else None))

    def _stay(self) -> None:
        if self._door.gone():
            raise BrokenPipeError

    def _say(self, text: str, generation: Generation, said: list[str], likely: Likely) -> None:
        """Show a text, or keep it for the whole answer; with it go the probabilities of all tokens since the last one."""
        if not text:
            return
        told = generation.likely()
        if self._streams:
            self._show(self._form.piece(text, told))
        else:
            said.append(text)
            likely += told or []

    def _show(self, events: bytes) -> None:
        if not self._begun:
            self._begun = True
            self._door.begin_stream()
            events = self._form.opening() + events
        self._door.send(events)


def wrong(problem: Exception) -> RefusedError:
    """Return what a client is told of an error of the library's."""
    said = (str(problem).splitlines() or [""])[0][:300]
    return RefusedError(f"ONNX Runtime GenAI failed: {said}", 500, "server_error")
