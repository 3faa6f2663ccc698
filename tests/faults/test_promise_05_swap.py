"""One place, a long stream on A, a request for B: A ends whole, B comes right after, and nothing else waits."""

from __future__ import annotations

import threading
import time
from typing import Self

from tests.conftest import OpenHouse
from tests.house.exchange import Exchange
from tests.house.models import STORY, TALE
from tests.house.server import Server
from tests.house.waiting import wait_for

LOOP, TALES = "extra.tiny-loop", "extra.tiny-tale"


class Watcher:
    """Asks for the health all the time; keeps the statuses and the longest wait."""

    def __init__(self, server: Server) -> None:
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
            self._end.wait(0.02)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(10)


def test_a_stream_is_never_cut_for_another_model(open_house: OpenHouse) -> None:
    server = open_house("tiny-loop", "tiny-tale", max_loaded_models=1, slots=2, load=[LOOP])
    server.wait_loaded(LOOP)
    ended: list[tuple[str, float]] = []

    def finish(name: str, exchange: Exchange) -> threading.Thread:
        def work() -> None:
            exchange.finish(60)
            ended.append((name, time.monotonic()))

        thread = threading.Thread(target=work)
        thread.start()
        return thread

    with Watcher(server) as watcher:
        first = server.client.start_chat(LOOP, stream=True, max_tokens=1500)
        first.until(lambda it: len(it.events) > 2)
        engine = server.engine_pid(LOOP)
        threads = [finish("A", first)]
        other = server.client.start_chat(TALES)
        wait_for(lambda: server.state()["queued"] == 1, "B waits")
        threads.append(finish("B", other))
        late = server.client.start_chat(LOOP, max_tokens=20)
        wait_for(lambda: server.state()["queued"] == 2, "the second request for A waits, although a slot is free")
        threads.append(finish("A again", late))
        assert server.engine_pid(LOOP) == engine, "the busy model was not touched"
        for thread in threads:
            thread.join(60)

    assert [name for name, _ in sorted(ended, key=lambda it: it[1])] == ["A", "B", "A again"]
    assert first.done
    assert first.text.startswith(STORY + STORY)
    assert first.chunks[-1]["choices"][0]["finish_reason"] == "length"
    assert other.text == TALE
    assert late.text == STORY
    assert {status for _, status, _ in watcher.seen} == {200}
    assert len(watcher.seen) > 20
    print(f"slowest health during the swap: {1000 * max(seconds for *_, seconds in watcher.seen):.1f} ms")
