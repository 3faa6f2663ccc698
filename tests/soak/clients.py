"""Clients of the soak: each one a thread that sends one random request after another and lets the oracle judge."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from tests.soak import oracle
from tests.soak.history import EVERYWHERE, Entry, FaultKind, History
from tests.support.clients.http_client import RawHttpClient
from tests.support.clients.http_exchange import HttpExchange
from tests.support.server import LemonbusServer

PATIENCE_S: Final = 120.0
"""Every request must have ended within this time, whatever was killed meanwhile; a stream must have gone on, as busy machines are slow."""
ENDS_S: Final = 180.0
"""Within this time after the end, the last fault is over; within this time after the last request, its answer has been read."""


def _name(action: Callable[[], str]) -> str:
    return action.__name__.lstrip("_")


def read_to_end(exchange: HttpExchange) -> HttpExchange:
    """Read a response to its end; raises TimeoutError if nothing but comments arrives for :data:`PATIENCE_S`."""
    last = time.monotonic()
    try:
        while not exchange.over:
            before = len(exchange.events)
            exchange.read(patience=PATIENCE_S)
            if any(event.name != ":" for event in exchange.events[before:]):
                last = time.monotonic()
            if time.monotonic() > last + PATIENCE_S:
                raise TimeoutError(f"nothing for {PATIENCE_S:g} s: {exchange}")
    finally:
        exchange.connection.close()
    return exchange


class SoakClient(threading.Thread):
    """One client. ``end`` tells it to stop after its present request."""

    def __init__(self, entry: Entry, seed: int, end: threading.Event, history: History) -> None:
        """Make its choices from ``seed``."""
        super().__init__(name=f"client-{entry.place}-{seed}", daemon=True)
        self._entry = entry
        self._client = RawHttpClient(entry.port, {"Authorization": f"Bearer {entry.key}"} if entry.key else {})
        self._random = random.Random(seed)
        self._end = end
        self._history = history
        self._numbers: dict[str, Any] = {}

    def run(self) -> None:
        """Send requests until the end."""
        actions: list[tuple[int, Callable[[], str]]] = [
            (6, self._stream),
            (6, self._whole),
            (2, self._hang_up),
            (1, self._slow_reader),
            (2, self._embed),
            (2, self._rerank),
            (1, self._load),
            (1, self._unload),
            (1, self._health),
        ]
        actions = [each for each in actions if not self._entry.actions or _name(each[1]) in self._entry.actions]
        weights = [weight for weight, _ in actions]
        while not self._end.is_set():
            (_, action) = self._random.choices(actions, weights)[0]
            name = _name(action)
            try:
                wrong = action()
            except (AssertionError, OSError, ValueError, KeyError) as error:
                wrong = f"{type(error).__name__}: {error}"
            self._history.count(name)
            if wrong:
                self._history.violate(f"{name}: {wrong}")

    def _start(self, model: str, *, stream: bool, receive_buffer: int = 0, **more: Any) -> HttpExchange:
        asked = {"messages": [{"role": "user", "content": "hi"}]} if "chat" in self._entry.path else {"prompt": "hi"}
        body = {"model": model, "temperature": 0, "stream": stream, **asked, **more}
        connection = self._client.connect(receive_buffer)
        self._history.send(self._entry, chat=True)
        return self._client.start("POST", self._entry.path, body, connection=connection)

    def _request(self, *, stream: bool, most: int = 10_000, **more: Any) -> tuple[HttpExchange, str, int]:
        model = self._random.choice(self._entry.models)
        tokens = min(most, self._random.choice(self._entry.lengths))
        limit = {"max_tokens": tokens} if model == oracle.ENDLESS else {}
        return self._start(model, stream=stream, **limit, **more), model, tokens

    def _judge(self, exchange: HttpExchange, model: str, tokens: int) -> str:
        self._history.answered(self._entry, model, exchange, chat=True)
        return oracle.check_chat(exchange, model, tokens)

    def _stream(self) -> str:
        exchange, model, tokens = self._request(stream=True)
        return self._judge(read_to_end(exchange), model, tokens)

    def _whole(self) -> str:
        exchange, model, tokens = self._request(stream=False)
        return self._judge(read_to_end(exchange), model, tokens)

    def _hang_up(self) -> str:
        exchange = self._start(oracle.ENDLESS, stream=self._random.random() < 0.5, max_tokens=2000)
        if self._random.random() < 0.5:
            exchange.read(patience=PATIENCE_S)
        exchange.hang_up()
        return ""

    def _slow_reader(self) -> str:
        exchange, model, tokens = self._request(stream=True, most=400, receive_buffer=4096)
        while not exchange.over:
            exchange.read(most=512, patience=PATIENCE_S)
            self._end.wait(0.01)
        exchange.connection.close()
        return self._judge(exchange, model, tokens)

    def _embed(self) -> str:
        word = self._random.choice(("lemon", "bus", "lemonbus"))
        return self._compute("/v1/embeddings", {"model": oracle.EMBED, "input": word}, f"embedding of {word}")

    def _rerank(self) -> str:
        body = {"model": oracle.RERANK, "query": "lemon", "documents": ["a lemon", "a bus"]}
        return self._compute("/v1/rerank", body, "ranking")

    def _compute(self, path: str, body: dict[str, Any], key: str) -> str:
        connection = self._client.connect()
        self._history.send(self._entry, chat=False)
        exchange = self._client.start("POST", path, body, connection=connection).finish(PATIENCE_S)
        self._history.answered(self._entry, body["model"], exchange, chat=False)
        return oracle.check_numbers(exchange, key, self._numbers)

    def _load(self) -> str:
        return self._manage("/v1/load", self._random.choice(oracle.CHATS))

    def _unload(self) -> str:
        model = self._random.choice(oracle.CHATS)
        with self._history.fault(FaultKind.UNLOAD, EVERYWHERE, "unloaded a model", model):
            return self._manage("/v1/unload", model)

    def _manage(self, path: str, model: str) -> str:
        exchange = self._client.post(path, {"model_name": model}, PATIENCE_S)
        if exchange.status in (0, 200, 404):  # 404: unload of a model that is not loaded
            return ""
        return oracle.check_chat(exchange, model, 0)

    def _health(self) -> str:
        exchange = self._client.get("/v1/health", PATIENCE_S)
        return "" if exchange.status in (0, 200, 503) else f"health said {exchange.status}"


def soak(
    server: LemonbusServer,
    entries: Sequence[Entry],
    seconds: float,
    seed: int,
    faults: threading.Thread,
    end_of_faults: threading.Event,
    history: History,
) -> None:
    """Send requests while ``faults`` runs, a client for each of ``entries``; return when all of them have been answered."""
    end = threading.Event()
    threads = [SoakClient(entry, seed + 1 + number, end, history) for number, entry in enumerate(entries)]
    for thread in (*threads, faults):
        thread.start()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and server.alive:
        end.wait(min(5.0, max(0.0, deadline - time.monotonic())))
    end_of_faults.set()
    faults.join(ENDS_S)
    if faults.is_alive():
        history.violate("the last fault does not end")
    end.set()
    deadline = time.monotonic() + ENDS_S
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            history.violate(f"{thread.name} has a request without an end")
    if not server.alive:
        history.violate("the server is gone")
