"""What happened in a soak, for the judgement afterwards: the faults that were injected, and what clients got."""

from __future__ import annotations

import enum
import math
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from tests.soak.oracle import CHATS
from tests.support.clients.http_exchange import HttpExchange

EVERYWHERE: Final = "everywhere"
"""The place of what is done to a model wherever it runs."""


class FaultKind(enum.StrEnum):
    """What a fault does."""

    NODE = "node"
    """The agent of a node is killed, stopped, cut off or told to leave: the node may be lost."""
    DRAIN = "drain"
    WORKER = "worker"
    ENGINE = "engine"
    SUPERVISOR = "supervisor"
    LINK = "link"
    """The link of a gateway on another machine."""
    UNLOAD = "unload"
    """A client has unloaded a model."""
    OVERLOAD = "overload"
    """Other programs keep the machine busy: nothing was injected, and it explains everything that is late."""


@dataclass(slots=True)
class Fault:
    """One fault. Times in Unix seconds, as in the log."""

    kind: FaultKind
    place: str
    """A node, a place where clients send their requests, or :data:`EVERYWHERE`."""
    what: str
    model: str = ""
    """The model whose process it hits; empty: all there, or it is not known."""
    began: float = 0.0
    ended: float = math.inf


@dataclass(frozen=True, slots=True)
class Failed:
    """A request that its client got an error for."""

    place: str
    model: str
    status: int
    """200: a stream that broke."""
    code: str
    message: str
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a client sends its requests, and as whom."""

    place: str
    port: int
    path: str = "/v1/chat/completions"
    key: str = ""
    actions: tuple[str, ...] = ()
    """What its clients do; empty: everything."""
    lengths: tuple[int, ...] = (1, 8, 64, 400)
    """How many tokens they ask the endless model for."""
    models: tuple[str, ...] = CHATS
    """The models that chats are with."""


class History:
    """Faults, counts and violations. All threads of a soak write it."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.counts: Counter[str] = Counter()
        """What was done, by kind."""
        self.violations: list[str] = []
        self.faults: list[Fault] = []
        self.failed: list[Failed] = []
        self.sent: Counter[str] = Counter()
        """Place → requests for a model."""
        self.whole: Counter[str] = Counter()
        """Place → those of them whose clients got a whole answer."""
        self.chats: Counter[str] = Counter()
        """Place → chats and completions."""
        self.statuses: Counter[tuple[str, str]] = Counter()
        """Place and HTTP status → chats and completions that were read to their end."""
        self.errors: Counter[tuple[str, str]] = Counter()
        """Place and error code → those of them that failed, streams that broke included."""
        self._lock = threading.Lock()

    def count(self, kind: str) -> None:
        with self._lock:
            self.counts[kind] += 1

    def violate(self, what: str) -> None:
        with self._lock:
            self.violations.append(what)

    @contextmanager
    def fault(self, kind: FaultKind, place: str, what: str, model: str = "") -> Iterator[Fault]:
        """Note a fault that lasts as long as the block."""
        fault = Fault(kind, place, what, model, time.time())
        with self._lock:
            self.counts[what] += 1
            self.faults.append(fault)
        try:
            yield fault
        finally:
            fault.ended = time.time()

    def send(self, entry: Entry, *, chat: bool) -> None:
        """Count a request for a model."""
        with self._lock:
            self.sent[entry.place] += 1
            self.chats[entry.place] += chat

    def answered(self, entry: Entry, model: str, exchange: HttpExchange, *, chat: bool) -> None:
        """Count the answer to such a request, which was read to its end."""
        ended = time.time()
        error: Any = exchange.error if exchange.status and (exchange.complete or exchange.events) else {}
        code = str(error.get("code", "")) if isinstance(error, dict) else ""
        is_stream = exchange.headers.get("content-type", "").startswith("text/event-stream")
        whole = exchange.status == 200 and exchange.complete and not error and (exchange.done or not is_stream)
        with self._lock:
            self.whole[entry.place] += whole
            if chat and exchange.complete:
                self.statuses[entry.place, str(exchange.status)] += 1
                self.errors[entry.place, code] += bool(code)
            if code:
                self.counts[f"{'broken by' if exchange.status == 200 else 'refused with'} {code}"] += 1
                began = ended - (time.monotonic() - exchange.started)
                message = str(error.get("message", ""))
                self.failed.append(Failed(entry.place, model, exchange.status, code, message, began, ended))
