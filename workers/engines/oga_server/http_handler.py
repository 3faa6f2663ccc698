"""HTTP for one OGA model: `/props` and `/slots`, and answers that end when their client hangs up."""

from __future__ import annotations

import itertools
import os
import time
from typing import Any, NamedTuple

import msgspec

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

    def response_writer(self, chat: bool) -> ResponseWriter:
        """Return the writer of the next answer."""
        number = f"{os.getpid():x}-{next(self._numbers)}"
        return ResponseWriter(chat, self.alias, number, int(time.time()), self.model.build)

    def get_answer(self, path: str) -> Any:
        """Return the answer to a GET."""
        context = self.model.context
        if path == "/props":
            settings = {"n_ctx": context}
            return {"total_slots": 1, "default_generation_settings": settings, "build_info": self.model.build}
        if path == "/slots":
            return [{"id": 0, "n_ctx": context, "is_processing": self.working}]
        return super().get_answer(path)


class OgaHttpHandler(EngineHttpHandler):
    """One connection."""

    server: OgaHttpServer
    server_version = "oga-server"
    largest = 64 * 1024 * 1024

    def serve(self, path: str, body: bytes) -> None:
        """Answer a chat or a completion, or count the tokens of a chat's prompt."""
        if path == "/v1/chat/completions/input_tokens":
            tokens = self.server.model.tokens_of(oga_request.parse_request(body, chat=True))
            self.answer(msgspec.json.encode({"input_tokens": len(tokens), "object": "response.input_tokens"}))
            return
        if path not in ("/v1/chat/completions", "/v1/completions"):
            raise not_found_error()
        chat = path == "/v1/chat/completions"
        OgaCompletion(self, oga_request.parse_request(body, chat), chat).answer()

    def failure(self, problem: Exception) -> EngineHttpError:
        """Return an error of the library as its client sees it."""
        reason = (str(problem).splitlines() or [""])[0][:300]
        return EngineHttpError(f"ONNX Runtime GenAI failed: {reason}", 500, "server_error")


class _WholeAnswer(NamedTuple):
    """The parts of an answer that is sent at its end."""

    texts: list[str]
    logprobs: Logprobs


class OgaCompletion:
    """One answer, whole or streamed."""

    def __init__(self, handler: OgaHttpHandler, request: OgaRequest, chat: bool) -> None:
        """Nothing is sent yet."""
        self._handler, self._request = handler, request
        self._writer = handler.server.response_writer(chat)
        self._stop_words = StopWordFilter(request.stop_words)
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

    def _generate(self, generation: OgaGeneration, prompt_tokens: int) -> None:
        try:
            self._send_answer(generation, prompt_tokens)
        except OSError:  # the client's connection; the model is as good as before
            generation.end()
            raise
        generation.end()

    def _send_answer(self, generation: OgaGeneration, prompt_tokens: int) -> None:
        began = time.perf_counter()
        for done in generation.prefill():
            self._check_client()
            if self._streams and self._request.return_progress:
                milliseconds = round((time.perf_counter() - began) * 1000)
                self._send(self._writer.progress(prompt_tokens, generation.reused, done, milliseconds))
        prefilled = time.perf_counter()
        whole = _WholeAnswer([], [])
        for piece in generation.generate():
            self._check_client()
            self._add(self._stop_words.feed(piece), generation, whole)
            if self._stop_words.found:
                break
        reason = "stop" if self._stop_words.found else generation.reason
        self._add(self._stop_words.rest(), generation, whole)
        cost = GenerationCost(
            prompt_tokens, generation.reused, generation.count, prefilled - began, time.perf_counter() - prefilled
        )
        if self._streams:
            stopped_by = self._stop_words.found if self._request.verbose else None
            self._send(self._writer.ending(reason, cost, self._request.wants_usage, stopped_by))
            self._handler.send(b"")
        else:
            logprobs = whole.logprobs if self._request.logprob_count is not None else None
            self._handler.answer(self._writer.whole("".join(whole.texts), reason, cost, logprobs))

    def _check_client(self) -> None:
        if self._handler.client_disconnected():
            raise BrokenPipeError

    def _add(self, text: str, generation: OgaGeneration, whole: _WholeAnswer) -> None:
        """Send a text, or add it to the whole answer, with the log probabilities of all tokens since the last text."""
        if not text:
            return
        logprobs = generation.take_logprobs()
        if self._streams:
            self._send(self._writer.piece(text, logprobs))
        else:
            whole.texts.append(text)
            whole.logprobs.extend(logprobs or [])

    def _send(self, events: bytes) -> None:
        if not self._begun:
            self._begun = True
            self._handler.begin_stream()
            events = self._writer.opening() + events
        self._handler.send(events)
