"""Only one model fits. During a long stream of model A comes a request for B: A's stream is completed, then B is loaded, and nothing else waits."""

from __future__ import annotations

import threading
import time
from typing import Self

from tests.fake_engines.generation.slow_generation import text_of
from tests.support import processes
from tests.support.models.tiny_models import TALE_TEXT
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

LOOP, TALES = "extra.tiny-loop", "extra.tiny-tale"
REQUESTS = ("swap-A", "swap-B", "swap-A-again")
"""The ids of the requests, in the order in which they are answered."""


class Watcher:
    """Requests health all the time, and records the statuses and the longest wait."""

    def __init__(self, server: LemonbusServer) -> None:
        self.server = server
        self.seen: list[tuple[str, int, float]] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._end.is_set():
            for path in ("/v1/health", "/live"):
                start = time.monotonic()
                status = self.server.client.get(path, patience=5.0).status
                self.seen.append((path, status, time.monotonic() - start))
            self._end.wait(0.05)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(10)


def test_a_stream_is_never_cut_for_another_model(pausing_server: LemonbusServer) -> None:
    server = pausing_server
    with Watcher(server) as watcher:
        first = server.client.start_chat(LOOP, {"X-Request-ID": "swap-A"}, stream=True, max_tokens=40)
        first.until(lambda it: len(it.events) > 2)
        engine = server.engine_pid(LOOP)
        with processes.stopped(
            engine
        ):  # the stream lasts until both other requests were sent, however slow the machine is
            other = server.client.start_chat(TALES, {"X-Request-ID": "swap-B"})
            wait_for(lambda: server.state()["queued"] == 1, "B waits")
            late = server.client.start_chat(LOOP, {"X-Request-ID": "swap-A-again"}, max_tokens=3)
            wait_for(lambda: server.state()["queued"] == 2, "the second request for A waits, although a slot is free")
            assert server.engine_pid(LOOP) == engine, "the busy model was not touched"
        for exchange in (first, other, late):
            exchange.finish(60)

    assert first.done
    assert first.text == text_of(40)
    assert other.text == TALE_TEXT
    assert late.text == text_of(3)
    one_after_the_other = [(request, event) for request in REQUESTS for event in ("granted", "answered")]
    wait_for(lambda: _request_events(server) == one_after_the_other, "A, then B, then A again")
    assert {status for _, status, _ in watcher.seen} == {200}
    assert len(watcher.seen) > 8
    print(f"slowest health during the swap: {1000 * max(seconds for *_, seconds in watcher.seen):.1f} ms")


def _request_events(server: LemonbusServer) -> list[tuple[str, str]]:
    """Return which request was granted and which was answered, in the order of the log."""
    reported = ((str(line.get("request_id")), str(line["event"])) for line in server.lines)
    return [(request, event) for request, event in reported if request in REQUESTS and event in ("granted", "answered")]
