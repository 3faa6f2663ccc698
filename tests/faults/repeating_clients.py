"""Clients that ask a server again and again while a test breaks or replaces something; all of them must be answered."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from tests.support.server import LemonbusServer

PATIENCE: Final = 60.0


class Clients:
    """Clients that ask again and again until they are stopped; what they got is counted."""

    def __init__(self, server: LemonbusServer) -> None:
        self._server = server
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self.answers: Counter[str] = Counter()
        self.failures: list[str] = []

    def start(self, model: str, count: int, **fields: Any) -> None:
        """Let ``count`` clients ask a model; every other one for a stream."""
        for number in range(count):
            one = threading.Thread(target=self._ask, args=(model, number % 2 == 0, fields), daemon=True)
            one.start()
            self._threads.append(one)

    def repeat(self, name: str, ask: Callable[[], None]) -> None:
        """Let a client do this again and again; it raises AssertionError or OSError if it fails."""

        def again() -> None:
            while not self._stopped.is_set():
                try:
                    ask()
                except (AssertionError, OSError) as problem:
                    self.failures.append(f"{name}: {problem!r}")
                else:
                    self.answers[name] += 1

        one = threading.Thread(target=again, daemon=True)
        one.start()
        self._threads.append(one)

    def _ask(self, model: str, stream: bool, fields: dict[str, Any]) -> None:
        while not self._stopped.is_set():
            try:
                answer = self._server.client.start_chat(model, stream=stream, **fields).finish(PATIENCE)
            except (AssertionError, OSError) as problem:
                self.failures.append(f"{model}: {problem!r}")
                continue
            if answer.status == 200 and answer.complete and (answer.done or not stream):
                self.answers[model] += 1
            else:
                self.failures.append(f"{model}: {answer!r}")

    def stop(self) -> None:
        """Wait for the last answers."""
        self._stopped.set()
        for one in self._threads:
            one.join(PATIENCE)
            assert not one.is_alive(), "a request was never answered"


@contextmanager
def asking(server: LemonbusServer) -> Iterator[Clients]:
    made = Clients(server)
    try:
        yield made
    finally:
        made.stop()
