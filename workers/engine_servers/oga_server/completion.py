"""Answers one request: each choice of each prompt in turn, whole or streamed, until its client hangs up."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from workers.engine_servers.http_server import EngineHttpError, EngineHttpServer
from workers.engine_servers.oga_server.generation import OgaGeneration
from workers.engine_servers.oga_server.guidance import Guidance
from workers.engine_servers.oga_server.model import OgaModel
from workers.engine_servers.oga_server.request import OgaRequest
from workers.engine_servers.oga_server.response_writer import (
    DONE,
    GenerationCost,
    Logprobs,
    ResponseWriter,
    ToolCall,
    WholeChoice,
    error_event,
)
from workers.engine_servers.oga_server.stop_words import StopWordFilter
from workers.tool_calls.call_parser import (
    NO_LIMIT,
    CallArguments,
    CallEvent,
    CallStart,
    TextPiece,
    ToolCallParser,
)


class Connection(Protocol):
    """The part of :class:`~workers.engine_servers.http_server.EngineHttpHandler` that an answer needs."""

    @property
    def server(self) -> EngineHttpServer:
        """The listener, which has the lock on the engine."""

    def client_disconnected(self) -> bool:
        """Return whether the client has hung up."""

    def failure(self, problem: Exception) -> EngineHttpError:
        """Return an error of the library as its client sees it."""

    def begin_stream(self) -> None:
        """Send the head of a stream."""

    def send(self, data: bytes) -> None:
        """Send a part of a stream; an empty part ends it."""

    def answer(self, body: bytes) -> None:
        """Send a whole answer."""


class OgaCompletion:
    """One answer."""

    def __init__(self, connection: Connection, model: OgaModel, writer: ResponseWriter, request: OgaRequest) -> None:
        """Nothing is sent yet."""
        self._connection, self._model, self._writer, self._request = connection, model, writer, request
        self._begun = False

    def answer(self) -> None:
        """Answer; raises :class:`EngineHttpError` and the library's errors only while nothing was sent."""
        prompts = self._model.prompts_of(self._request)
        guidance = self._model.guidance(self._request)
        connection = self._connection
        with connection.server.engine_lock(connection.client_disconnected):
            try:
                self._answer(prompts, guidance)
            except OSError:
                raise
            except Exception as problem:
                if not self._begun:
                    raise
                connection.send(error_event(connection.failure(problem).body))
                connection.send(b"")

    def _answer(self, prompts: Sequence[Sequence[int]], guidance: Guidance | None) -> None:
        whole: list[WholeChoice] = []
        scored = [self._prompt_logprobs(tokens) for tokens in prompts] if self._request.scores_prompts else None
        if scored is not None and self._request.stream:
            self.send(self._writer.prompt_logprobs(scored))
        for tokens in prompts:
            first: GenerationCost | None = None
            for number in range(self._request.choices):
                generation = self._model.begin(tokens, self._request, guidance, number)
                choice = self._choice(len(whole), generation, len(tokens), first)
                whole.append(choice)
                first = first or choice.cost
        if self._request.stream:
            self._connection.send(DONE)
            self._connection.send(b"")
        else:
            self._connection.answer(self._writer.whole(whole, self._request.choices, scored))

    def _prompt_logprobs(self, tokens: Sequence[int]) -> Logprobs:
        found: Logprobs = []
        for entries in self._model.begin(tokens, self._request, reuse=False).prompt_logprobs():
            self.check_client()
            found += entries
        return found

    def _choice(
        self, index: int, generation: OgaGeneration, prompt_tokens: int, first: GenerationCost | None
    ) -> WholeChoice:
        try:
            choice = OgaChoice(self, self._writer, self._request, self._parser(), index)
            whole = choice.generate(generation, prompt_tokens, first)
        except OSError:  # the client's connection; the model is as good as before
            generation.end()
            raise
        generation.end()
        return whole

    def _parser(self) -> ToolCallParser | None:
        form, names = self._model.tool_format, self._request.callable_tools
        if form is None or not names:
            return None
        most = NO_LIMIT if self._request.may_call_several else 1
        return ToolCallParser(form, names, lambda: f"call_{secrets.token_hex(12)}", most)

    def check_client(self) -> None:
        """Raise BrokenPipeError if the client has hung up."""
        if self._connection.client_disconnected():
            raise BrokenPipeError

    def send(self, events: bytes) -> None:
        """Send events of a stream."""
        if not self._begun:
            self._begun = True
            self._connection.begin_stream()
        self._connection.send(events)


class _Call(NamedTuple):
    id: str
    name: str
    arguments: list[str]


class OgaChoice:
    """One choice of an answer."""

    def __init__(
        self,
        completion: OgaCompletion,
        writer: ResponseWriter,
        request: OgaRequest,
        parser: ToolCallParser | None,
        index: int,
    ) -> None:
        """``parser``: finds tool calls in the text; None if there can be none."""
        self._completion, self._writer, self._request = completion, writer, request
        self._parser, self._index = parser, index
        self._stop_words = StopWordFilter(request.stop_words)
        self._opened = False
        self._texts: list[str] = []
        self._calls: list[_Call] = []
        self._logprobs: Logprobs = []

    def generate(self, generation: OgaGeneration, prompt_tokens: int, first: GenerationCost | None) -> WholeChoice:
        """Generate and, for a stream, send; ``first``: the cost of the first choice of the same prompt, which computed it."""
        completion, began = self._completion, time.perf_counter()
        for done in generation.prefill():
            completion.check_client()
            if self._request.stream and self._request.return_progress and first is None:
                milliseconds = round((time.perf_counter() - began) * 1000)
                self._send(self._writer.progress(self._index, prompt_tokens, generation.reused, done, milliseconds))
        prefilled = time.perf_counter()
        for piece in generation.generate():
            completion.check_client()
            self._add(self._stop_words.feed(piece), generation)
            if self._stop_words.found or (self._parser is not None and self._parser.complete):
                break
        self._add(self._stop_words.rest(), generation, last=True)
        cost = GenerationCost(
            prompt_tokens,
            first.cached if first else generation.reused,
            generation.count,
            first.prompt_s if first else prefilled - began,
            time.perf_counter() - prefilled,
        )
        reason = self._finish_reason(generation.reason)
        if self._request.stream:
            stopped_by = self._stop_words.found if self._request.verbose else None
            self._send(self._writer.ending(self._index, reason, cost, self._request.wants_usage, stopped_by))
        calls = [ToolCall(call.id, call.name, "".join(call.arguments)) for call in self._calls]
        logprobs = self._logprobs if self._request.logprob_count is not None else None
        return WholeChoice("".join(self._texts), calls, reason, logprobs, cost)

    def _finish_reason(self, of_tokens: str) -> str:
        if self._parser is not None and self._parser.complete:
            return "tool_calls"
        reason = "stop" if self._stop_words.found else of_tokens
        return "tool_calls" if self._calls and reason == "stop" else reason

    def _add(self, text: str, generation: OgaGeneration, *, last: bool = False) -> None:
        for event in self._events(text, last=last):
            match event:
                case TextPiece(piece):
                    self._add_text(piece, generation)
                case CallStart(_, identity, name):
                    self._calls.append(_Call(identity, name, []))
                    self._send(self._writer.call_start(self._index, len(self._calls) - 1, ToolCall(identity, name, "")))
                case CallArguments(number, piece):
                    self._calls[number].arguments.append(piece)
                    self._send(self._writer.call_arguments(self._index, number, piece))

    def _events(self, text: str, *, last: bool) -> Iterable[CallEvent]:
        if self._parser is None:
            return [TextPiece(text)] if text else []
        return [*self._parser.feed(text), *(self._parser.finish() if last else [])]

    def _add_text(self, text: str, generation: OgaGeneration) -> None:
        """Take text with the log probabilities of all tokens since the last text."""
        logprobs = generation.take_logprobs()
        self._texts.append(text)
        self._logprobs.extend(logprobs or [])
        self._send(self._writer.piece(self._index, text, logprobs))

    def _send(self, events: bytes) -> None:
        """Send events, if the answer is a stream."""
        if not self._request.stream:
            return
        if not self._opened:
            self._opened = True
            events = self._writer.opening(self._index) + events
        self._completion.send(events)
