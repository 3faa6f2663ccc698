"""Clients that ask a server again and again while a test breaks or replaces something; all of them must be answered."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from tests.support.server import LemonbusServer

PATIENCE: Final = 60.0
PAUSE_S: Final = 0.1
"""Seconds between two requests of a client. With several clients there is always a request, and the processors are still mostly idle."""


class Clients:
    """Clients that send requests until they are stopped; their answers are counted."""

    def __init__(self, server: LemonbusServer) -> None:
        self._server = server
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self.answers: Counter[str] = Counter()
        self.failures: list[str] = []

    def start(self, model: str, count: int, text: str = "", **fields: Any) -> None:
        """Start ``count`` clients of a model; every second one asks for streams. ``text``: the text that each answer

        must have, if given.
        """
        for number in range(count):
            self._begin(partial(self._ask, model, number % 2 == 0, text, fields))

    def repeat(self, name: str, ask: Callable[[], None]) -> None:
        """Start a client that calls this repeatedly; the function raises AssertionError or OSError if it fails."""

        def again() -> None:
            try:
                ask()
            except (AssertionError, OSError) as problem:
                self.failures.append(f"{name}: {problem!r}")
            else:
                self.answers[name] += 1

        self._begin(again)

    def _begin(self, ask: Callable[[], None]) -> None:
        """Call ``ask`` repeatedly in a thread."""

        def again() -> None:
            while not self._stopped.is_set():
                ask()
                self._stopped.wait(PAUSE_S)

        one = threading.Thread(target=again, daemon=True)
        one.start()
        self._threads.append(one)

    def _ask(self, model: str, stream: bool, text: str, fields: dict[str, Any]) -> None:
        try:
            answer = self._server.client.start_chat(model, stream=stream, **fields).finish(PATIENCE)
        except (AssertionError, OSError) as problem:
            self.failures.append(f"{model}: {problem!r}")
            return
        whole = answer.status == 200 and answer.complete and (answer.done or not stream)
        if whole and (not text or answer.text == text):
            self.answers[model] += 1
        else:
            self.failures.append(f"{model}: {answer!r}")

    def stop(self) -> None:
        """Stop the clients and wait for their last answers."""
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
