"""HTTP for one OGA model: its routes, `/props` and `/slots`."""

from __future__ import annotations

import itertools
import os
import time
from typing import Any, Final

import msgspec

from workers.engine_servers.http_server import EngineHttpError, EngineHttpHandler, EngineHttpServer, not_found_error
from workers.engine_servers.oga_server import request as oga_request
from workers.engine_servers.oga_server.completion import OgaCompletion
from workers.engine_servers.oga_server.guidance import guidance_error
from workers.engine_servers.oga_server.model import OgaModel
from workers.engine_servers.oga_server.response_writer import ResponseWriter

_GUIDANCE_FAILED: Final = ("Error computing mask", "Error committing tokens")
"""A part of the library's message if a grammar turns out to be too complex when it is used."""


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
            (tokens,) = self.server.model.prompts_of(oga_request.parse_request(body, chat=True))
            self.answer(msgspec.json.encode({"input_tokens": len(tokens), "object": "response.input_tokens"}))
            return
        if path not in ("/v1/chat/completions", "/v1/completions"):
            raise not_found_error()
        chat = path == "/v1/chat/completions"
        request = oga_request.parse_request(body, chat)
        OgaCompletion(self, self.server.model, self.server.response_writer(chat), request).answer()

    def failure(self, problem: Exception) -> EngineHttpError:
        """Return an error of the library as its client sees it."""
        if isinstance(problem, RecursionError):
            return EngineHttpError("the request is nested too deeply")
        reason = (str(problem).splitlines() or [""])[0][:300]
        if any(each in reason for each in _GUIDANCE_FAILED):
            return guidance_error(problem, "response_format")
        return EngineHttpError(f"ONNX Runtime GenAI failed: {reason}", 500, "server_error")
