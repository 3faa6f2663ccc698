"""Clients of the soak: each one a thread that sends one random request after another and lets the oracle judge."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from tests.soak import oracle
from tests.support.clients.http_client import RawHttpClient
from tests.support.clients.http_exchange import HttpExchange

PATIENCE_S: Final = 90.0
"""Every request must have ended within this time, whatever was killed meanwhile."""
CHATS: Final = (*oracle.TEXTS, oracle.ENDLESS)


class Tally:
    """The results: counts by kind, and the violations."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []
        self._lock = threading.Lock()

    def count(self, kind: str) -> None:
        with self._lock:
            self.counts[kind] += 1

    def violate(self, what: str) -> None:
        with self._lock:
            self.violations.append(what)


class SoakClient(threading.Thread):
    """One client. ``end`` tells it to stop after its present request."""

    def __init__(self, port: int, seed: int, end: threading.Event, tally: Tally) -> None:
        """Make its choices from ``seed``."""
        super().__init__(name=f"client-{seed}", daemon=True)
        self._client = RawHttpClient(port)
        self._random = random.Random(seed)
        self._end = end
        self._tally = tally
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
        weights = [weight for weight, _ in actions]
        while not self._end.is_set():
            (_, action) = self._random.choices(actions, weights)[0]
            name = action.__name__.lstrip("_")
            try:
                wrong = action()
            except (AssertionError, OSError, ValueError, KeyError) as error:
                wrong = f"{type(error).__name__}: {error}"
            self._tally.count(name)
            if wrong:
                self._tally.violate(f"{name}: {wrong}")

    def _request(self, *, stream: bool, **more: Any) -> tuple[HttpExchange, str, int]:
        model = self._random.choice(CHATS)
        tokens = self._random.choice((1, 8, 64, 400))
        limit = {"max_tokens": tokens} if model == oracle.ENDLESS else {}
        exchange = self._client.start_chat(model, stream=stream, **limit, **more)
        return exchange, model, tokens

    def _stream(self) -> str:
        exchange, model, tokens = self._request(stream=True)
        return oracle.check_chat(exchange.finish(PATIENCE_S), model, tokens)

    def _whole(self) -> str:
        exchange, model, tokens = self._request(stream=False)
        return oracle.check_chat(exchange.finish(PATIENCE_S), model, tokens)

    def _hang_up(self) -> str:
        exchange = self._client.start_chat(oracle.ENDLESS, stream=self._random.random() < 0.5, max_tokens=2000)
        if self._random.random() < 0.5:
            exchange.read(patience=PATIENCE_S)
        exchange.hang_up()
        return ""

    def _slow_reader(self) -> str:
        exchange, model, tokens = self._request(stream=True, receive_buffer=4096)
        while not exchange.over:
            exchange.read(most=512, patience=PATIENCE_S)
            self._end.wait(0.01)
        exchange.connection.close()
        return oracle.check_chat(exchange, model, tokens)

    def _embed(self) -> str:
        word = self._random.choice(("lemon", "bus", "lemonbus"))
        exchange = self._client.post("/v1/embeddings", {"model": "extra.tiny-embed", "input": word}, PATIENCE_S)
        return oracle.check_numbers(exchange, f"embedding of {word}", self._numbers)

    def _rerank(self) -> str:
        body = {"model": "extra.tiny-rerank", "query": "lemon", "documents": ["a lemon", "a bus"]}
        return oracle.check_numbers(self._client.post("/v1/rerank", body, PATIENCE_S), "ranking", self._numbers)

    def _load(self) -> str:
        return self._manage("/v1/load", self._random.choice(CHATS))

    def _unload(self) -> str:
        return self._manage("/v1/unload", self._random.choice(CHATS))

    def _manage(self, path: str, model: str) -> str:
        exchange = self._client.post(path, {"model_name": model}, PATIENCE_S)
        if exchange.status in (0, 200, 404):  # 404: unload of a model that is not loaded
            return ""
        return oracle.check_chat(exchange, model, 0)

    def _health(self) -> str:
        exchange = self._client.get("/v1/health", PATIENCE_S)
        return "" if exchange.status in (0, 200, 503) else f"health said {exchange.status}"
