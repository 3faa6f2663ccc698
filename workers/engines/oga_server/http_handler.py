"""HTTP in front of one OGA model: what it says of itself, and answers that end when nobody listens any more."""

from __future__ import annotations

import itertools
import os
import time
from typing import Any

from workers.engines.http_errors import EngineHttpError
from workers.engines.http_server import EngineHttpHandler, EngineHttpServer, not_found_error
from workers.engines.oga_server import request as oga_request
from workers.engines.oga_server.model import OgaGeneration, OgaModel
from workers.engines.oga_server.request import OgaRequest
from workers.engines.oga_server.response_writer import GenerationCost, Logprobs, ResponseWriter, error_event
from workers.engines.oga_server.stop_words import StopWordFilter


class OgaHttpServer(EngineHttpServer):
    """The listener in front of one model."""

    def __init__(self, address: tuple[str, int], model: OgaModel, alias: str, key: str) -> None:
        """Listen at once; raises OSError."""
        self.model = model
        self._numbers = itertools.count(1)
        super().__init__(address, OgaHttpHandler, alias, key)

    def form(self, chat: bool) -> ResponseWriter:
        """Return how the next answer is written."""
        number = f"{os.getpid():x}-{next(self._numbers)}"
        return ResponseWriter(chat, self.alias, number, int(time.time()), self.model.build)

    def told(self, path: str) -> Any:
        """Return what a GET is answered with."""
        context = self.model.context
        if path == "/props":
            settings = {"n_ctx": context}
            return {"total_slots": 1, "default_generation_settings": settings, "build_info": self.model.build}
        if path == "/slots":
            return [{"id": 0, "n_ctx": context, "is_processing": self.working}]
        return super().told(path)


class OgaHttpHandler(EngineHttpHandler):
    """One connection."""

    server: OgaHttpServer
    server_version = "oga-server"
    largest = 64 * 1024 * 1024

    def serve(self, path: str, body: bytes) -> None:
        """Answer a chat or a completion."""
        if path not in ("/v1/chat/completions", "/v1/completions"):
            raise not_found_error()
        chat = path == "/v1/chat/completions"
        OgaCompletion(self, oga_request.parse_request(body, chat), chat).answer()

    def failure(self, problem: Exception) -> EngineHttpError:
        """Return what a client is told of an error of the library's."""
        said = (str(problem).splitlines() or [""])[0][:300]
        return EngineHttpError(f"ONNX Runtime GenAI failed: {said}", 500, "server_error")

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


class OgaCompletion:
    """One answer, whole or streamed."""

    def __init__(self, handler: OgaHttpHandler, request: OgaRequest, chat: bool) -> None:
        """Nothing is sent yet."""
        self._handler, self._request = handler, request
        self._form = handler.server.form(chat)
        self._stop_words = StopWordFilter(request.stops)
        self._streams = bool(request.stream)
        self._begun = False

    def answer(self) -> None:
        """Answer; raises :class:`EngineHttpError` and the library's errors only while nothing was sent."""
        server = self._handler.server
        tokens = server.model.tokens_of(self._request)
        with server.engine_lock(self._handler.client_disconnected):
            try:
                self._generate(server.model.begin(tokens, self._request), len(tokens))
            except OSError:
                raise
            except Exception as problem:
                if not self._begun:
                    raise
                self._handler.send(error_event(self._handler.failure(problem).body))
                self._handler.send(b"")

    def _generate(self, generation: OgaGeneration, size: int) -> None:
        began = time.perf_counter()
        for processed in generation.read():
            self._check_client()
            if self._streams and self._request.return_progress:
                self._show(self._form.progress(size, processed, round((time.perf_counter() - began) * 1000)))
        read = time.perf_counter()
        said: list[str] = []
        likely: Logprobs = []
        for piece in generation.speak():
            self._check_client()
            self._say(self._stop_words.feed(piece), generation, said, likely)
            if self._stop_words.found:
                break
        reason = "stop" if self._stop_words.found else generation.reason
        self._say(self._stop_words.rest(), generation, said, likely)
        cost = GenerationCost(size, generation.count, read - began, time.perf_counter() - read)
        if self._streams:
            self._show(self._form.ending(reason, cost, self._request.usage))
            self._handler.send(b"")
        else:
            asked = self._request.likely is not None
            self._handler.answer(self._form.whole("".join(said), reason, cost, likely if asked else None))

    def _check_client(self) -> None:
        if self._handler.client_disconnected():
            raise BrokenPipeError

    def _say(self, text: str, generation: OgaGeneration, said: list[str], likely: Logprobs) -> None:
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
            self._handler.begin_stream()
            events = self._form.opening() + events
        self._handler.send(events)
