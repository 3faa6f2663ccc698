"""HTTP in front of one OGA model: what it says of itself, and answers that end when nobody listens any more."""

from __future__ import annotations

import itertools
import os
import time
from typing import Any

from workers.engines import oga_request
from workers.engines.door import Door, Visit, unknown
from workers.engines.oga_answers import Cost, Form, Likely, failed
from workers.engines.oga_model import Generation, Model
from workers.engines.oga_request import Request
from workers.engines.oga_words import Cutter
from workers.engines.refusal import RefusedError


class Server(Door):
    """The listener in front of one model."""

    def __init__(self, address: tuple[str, int], model: Model, alias: str, key: str) -> None:
        """Listen at once; raises OSError."""
        self.model = model
        self._numbers = itertools.count(1)
        super().__init__(address, Handler, alias, key)

    def form(self, chat: bool) -> Form:
        """Return how the next answer is written."""
        number = f"{os.getpid():x}-{next(self._numbers)}"
        return Form(chat, self.alias, number, int(time.time()), self.model.build)

    def told(self, path: str) -> Any:
        """Return what a GET is answered with."""
        context = self.model.context
        if path == "/props":
            settings = {"n_ctx": context}
            return {"total_slots": 1, "default_generation_settings": settings, "build_info": self.model.build}
        if path == "/slots":
            return [{"id": 0, "n_ctx": context, "is_processing": self.working}]
        return super().told(path)


class Handler(Visit):
    """One connection."""

    server: Server
    server_version = "oga-server"
    largest = 64 * 1024 * 1024

    def serve(self, path: str, body: bytes) -> None:
        """Answer a chat or a completion."""
        if path not in ("/v1/chat/completions", "/v1/completions"):
            raise unknown()
        chat = path == "/v1/chat/completions"
        Talk(self, oga_request.read(body, chat), chat).answer()

    def failure(self, problem: Exception) -> RefusedError:
        """Return what a client is told of an error of the library's."""
        said = (str(problem).splitlines() or [""])[0][:300]
        return RefusedError(f"ONNX Runtime GenAI failed: {said}", 500, "server_error")

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


class Talk:
    """One answer, whole or streamed."""

    def __init__(self, visit: Handler, request: Request, chat: bool) -> None:
        """Nothing is sent yet."""
        self._visit, self._request = visit, request
        self._form = visit.server.form(chat)
        self._cutter = Cutter(request.stops)
        self._streams = bool(request.stream)
        self._begun = False

    def answer(self) -> None:
        """Answer; raises :class:`RefusedError` and the library's errors only while nothing was sent."""
        server = self._visit.server
        tokens = server.model.tokens_of(self._request)
        with server.turn(self._visit.gone):
            try:
                self._speak(server.model.begin(tokens, self._request), len(tokens))
            except OSError:
                raise
            except Exception as problem:
                if not self._begun:
                    raise
                self._visit.send(failed(self._visit.failure(problem).body))
                self._visit.send(b"")

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
            self._visit.send(b"")
        else:
            asked = self._request.likely is not None
            self._visit.answer(self._form.whole("".join(said), reason, cost, likely if asked else None))

    def _stay(self) -> None:
        if self._visit.gone():
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
            self._visit.begin_stream()
            events = self._form.opening() + events
        self._visit.send(events)
