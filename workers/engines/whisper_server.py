"""Our ``whisper-server``: whisper.cpp's HTTP server in Python, over the pywhispercpp wheel, with its command line.

``GET /health`` is 503 while the model loads, then 200.  ``POST /inference`` takes a form with ``file`` in it and hears
one recording at a time, in the order of arrival; it stops within a window of 30 seconds when its client hangs up.
Exit codes: 0 after SIGTERM (which ends it by itself while it loads), 1 if the model cannot be loaded, 2 for a command
line that makes no sense.  It ends with the process that started it.
"""

from __future__ import annotations

import hmac
import os
import select
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import msgspec

from protocol import forms, transcripts
from protocol.transcripts import Transcript
from workers import ggml
from workers.engines.flags import FlagError
from workers.engines.hearing import Hearing, HearingError
from workers.engines.llama_server import wait_for_the_end
from workers.engines.sound import SoundError, samples
from workers.engines.whisper_flags import KEY, read, version, wishes
from workers.gguf import BrokenError

LARGEST_BODY: Final = 1024 * 1024 * 1024
LOOK_S: Final = 0.1
"""How often a waiting request looks whether its client is still there."""
PATIENCE_S: Final = 120
_JSON: Final = "application/json"


class RefusalError(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, message: str, kind: str = "invalid_request_error") -> None:
        """Answer with ``status``."""
        super().__init__(message)
        self.status, self.message, self.kind = status, message, kind


class Server(ThreadingHTTPServer):
    """The listener, the model once it is loaded, and whose turn it is."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], key: str, convert: bool) -> None:
        """Listen; answer 503 until ``hearing`` is set."""
        super().__init__(address, Handler)
        self.key, self.convert = key.encode(), convert
        self.hearing: Hearing | None = None
        self.turn = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    """Answers one connection's requests."""

    protocol_version = "HTTP/1.1"
    timeout = PATIENCE_S
    wbufsize = -1
    disable_nagle_algorithm = True
    server: Server

    def do_GET(self) -> None:
        """Answer ``/health``."""
        if self.path != "/health":
            self._refuse(RefusalError(404, "File Not Found", "not_found_error"))
        elif self.server.hearing is None:
            self._answer(503, b'{"status":"loading model"}')
        else:
            self._answer(200, b'{"status":"ok"}')

    def do_POST(self) -> None:
        """Answer ``/inference``."""
        try:
            body = self._body()
            self._hear(self._admitted(), body)
        except RefusalError as refusal:
            self._refuse(refusal)
        except ConnectionError:
            self.close_connection = True
        except Exception as problem:  # noqa: BLE001 - the client hears that it failed, the log why
            sys.stderr.write(f"error: {problem!r}\n")
            self._refuse(RefusalError(500, "the server failed on this request", "server_error"))

    def _body(self) -> bytes:
        said = self.headers.get("Content-Length", "")
        if not (said.isascii() and said.isdigit()) or int(said[:12]) > LARGEST_BODY:
            self.close_connection = True
            raise RefusalError(413 if said.isdigit() else 411, "the length of the body is missing or too large")
        body = self.rfile.read(int(said))
        if len(body) < int(said):
            raise ConnectionAbortedError
        return body

    def _admitted(self) -> Hearing:
        if self.path != "/inference":
            raise RefusalError(404, "File Not Found", "not_found_error")
        self._check_key()
        if self.server.hearing is None:
            raise RefusalError(503, "Loading model", "unavailable_error")
        return self.server.hearing

    def _check_key(self) -> None:
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        given = token.strip() if scheme.lower() == "bearer" else self.headers.get("X-Api-Key", "")
        if self.server.key and not hmac.compare_digest(given.encode("latin-1", "replace"), self.server.key):
            raise RefusalError(401, "Invalid API Key", "authentication_error")

    def _hear(self, hearing: Hearing, body: bytes) -> None:
        """Answer when it is this request's turn; also what is wrong with it, as whisper-server does."""
        while not self.server.turn.acquire(timeout=LOOK_S):
            if self._gone():
                raise ConnectionAbortedError
        try:
            fields, recording = self._form(body)
            asked = wishes(fields)
            form = str(asked.pop("<form>", "json"))
            heard = hearing.hear(samples(recording, convert=self.server.convert), asked, self._gone)
        except (FlagError, SoundError) as problem:
            raise RefusalError(400, str(problem)) from None
        except HearingError as problem:
            raise RefusalError(500, str(problem), "server_error") from None
        finally:
            self.server.turn.release()
        if heard is None:
            raise ConnectionAbortedError
        self._answer(200, *_written(heard, form))

    def _form(self, body: bytes) -> tuple[dict[str, str], bytes]:
        try:
            boundary = forms.boundary_in(self.headers.get("Content-Type", ""))
            parts = forms.read(boundary, body)
            fields = {part.name: part.text() for part in parts if part.name != "file"}
        except ValueError as problem:
            raise RefusalError(400, f"the body is no form that can be read: {problem}") from None
        recordings = [part.data for part in parts if part.name == "file"]
        if len(recordings) != 1:
            raise RefusalError(400, "no 'file' field in the request" if not recordings else "more than one 'file'")
        return fields, recordings[0]

    def _gone(self) -> bool:
        """Return whether the client has hung up."""
        try:
            return bool(select.select([self.connection], [], [], 0)[0]) and not self.connection.recv(1, socket.MSG_PEEK)
        except (OSError, ValueError):
            return True

    def _answer(self, status: int, body: bytes, kind: str = _JSON) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def _refuse(self, refusal: RefusalError) -> None:
        error = {"code": refusal.status, "message": refusal.message, "type": refusal.kind}
        self._answer(refusal.status, msgspec.json.encode({"error": error}))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
        """Say nothing: whoever asks has a log of its own."""


def _written(heard: Transcript, form: str) -> tuple[bytes, str]:
    """Return an answer in whisper-server's own forms; its long JSON has the words inside the segments."""
    if form in transcripts.WRITTEN:
        kind, write = transcripts.WRITTEN[form]
        return write(heard).encode(), kind
    if form == "verbose_json":
        return msgspec.json.encode(heard), _JSON
    return msgspec.json.encode({"text": heard.text}), _JSON


def main(words: list[str]) -> int:
    """Serve until told to end; return the exit code."""
    try:
        parent = os.pidfd_open(os.getppid())
        given: dict[str, Any] = dict(read(words))
    except (FlagError, ProcessLookupError) as problem:
        sys.stderr.write(f"whisper-server: {problem}\n")
        return 2 if isinstance(problem, FlagError) else 1
    if given.get("<version>"):
        sys.stdout.write(f"whisper-server over pywhispercpp {version()}\n")
        return 0
    path = str(given.pop("<model>", ""))
    if not path:
        sys.stderr.write("whisper-server: -m is missing\n")
        return 2
    address = (str(given.pop("<host>", "127.0.0.1")), int(given.pop("<port>", 8080)))
    try:
        server = Server(address, os.environ.pop(KEY, ""), bool(given.pop("<convert>", False)))
    except OSError as problem:
        sys.stderr.write(f"whisper-server: cannot listen: {problem.strerror}\n")
        return 1
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        ggml.check(Path(path))  # the library would read on behind the end
        server.hearing = Hearing(path, given)
    except (ImportError, OSError, BrokenError, HearingError) as problem:
        sys.stderr.write(f"whisper-server: cannot load the model: {problem}\n")
        return 1
    wait_for_the_end(parent)
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # At once: what still listens and computes has nothing worth tidying.
    os._exit(code)
