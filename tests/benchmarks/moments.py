"""How long single things take: a swap, a crash, a hang-up; and the health meanwhile. Milliseconds."""

from __future__ import annotations

import threading
import time

import msgspec

from tests.benchmarks.direct import alone
from tests.benchmarks.figures import middle, ms, share, until
from tests.house import processes
from tests.house.client import Client
from tests.house.exchange import Exchange
from tests.house.models import prompt_of
from tests.house.server import Server

CHAT, TALES, LOOP, SLOW = "extra.tiny-chat", "extra.tiny-tale", "extra.tiny-loop", "extra.tiny-slow"


class Moments(msgspec.Struct):
    """Medians over the turns, but for the health, where the slowest and the 99th percentile count."""

    swap: float = 0.0
    engine_start: float = 0.0
    health_p99: float = 0.0
    health_worst: float = 0.0
    crash_noticed: float = 0.0
    crash_told: float = 0.0
    crash_ready: float = 0.0
    hang_up_decoding: float = 0.0
    hang_up_prefill: float = 0.0

    @property
    def swap_over(self) -> float:
        return self.swap - self.engine_start


def measure(turns: int) -> Moments:
    """Measure everything."""
    moments = Moments()
    _swaps(moments, turns)
    _crashes(moments, turns)
    _hang_ups(moments, turns)
    return moments


def _swaps(moments: Moments, turns: int) -> None:
    swaps: list[float] = []
    starts: list[float] = []
    healths: list[float] = []
    with Server(
        "tiny-chat", "tiny-tale", max_loaded_models=1, log_level="info", gateway_workers=0, load=[CHAT]
    ) as server:
        server.wait_loaded(CHAT)
        for turn in range(2 * turns):
            model = (TALES, CHAT)[turn % 2]
            until(lambda: _workers(server) == 2)  # a swap right after another one is not what is measured
            end = threading.Event()
            watcher = threading.Thread(target=_watch, args=(server, end, healths))
            if turn >= turns:
                watcher.start()
            started = time.perf_counter()
            request = server.client.start_chat(model, stream=True, max_tokens=1)
            request.until(lambda it: it.status)
            if turn < turns:
                swaps.append(time.perf_counter() - started)
            request.finish()
            end.set()
            if turn >= turns:
                watcher.join()
            with alone(server.engine(model), policy=True) as (_, seconds):
                starts.append(seconds)
    moments.swap, moments.engine_start = ms(middle(swaps)), ms(middle(starts))
    moments.health_p99, moments.health_worst = ms(share(healths, 0.99)), ms(max(healths))


def _workers(server: Server) -> int:
    """How many workers have imported everything and said hello."""
    return sum(peer["role"] == "worker" for peer in server.state()["processes"])


def _watch(server: Server, end: threading.Event, seen: list[float]) -> None:
    client = Client(server.port)
    while not end.wait(0.005):
        started = time.perf_counter()
        assert client.get("/v1/health").status == 200
        seen.append(time.perf_counter() - started)


def _crashes(moments: Moments, turns: int) -> None:
    noticed, told, ready = [], [], []
    with Server("tiny-loop", log_level="info", gateway_workers=0, load=[LOOP]) as server:
        for _ in range(turns):
            server.wait_loaded(LOOP)
            engine = server.engine_pid(LOOP)
            stream = server.client.start_chat(LOOP, stream=True, max_tokens=6000)
            stream.until(lambda it: len(it.events) > 10)
            told_at: list[float] = []
            reader = threading.Thread(target=_until_told, args=(stream, told_at))
            reader.start()
            started = time.perf_counter()
            processes.kill(engine)
            noticed.append(until(lambda: server.model_state(LOOP) != "ready"))
            until(lambda: server.model_state(LOOP) == "ready")
            ready.append(time.perf_counter() - started)
            reader.join()
            told.append(told_at[0] - started)
    moments.crash_noticed, moments.crash_told, moments.crash_ready = (
        ms(middle(values)) for values in (noticed, told, ready)
    )


def _until_told(stream: Exchange, told_at: list[float]) -> None:
    stream.until(lambda it: '"error"' in it.events[-1].data)
    told_at.append(time.perf_counter())
    stream.finish()


def _hang_ups(moments: Moments, turns: int) -> None:
    decoding, prefill = [], []
    with Server("tiny-loop", "tiny-slow", log_level="info", gateway_workers=0, load=[LOOP, SLOW]) as server:
        server.wait_loaded(LOOP, SLOW)
        slots = {model: Client(int(server.engine(model).option("--port"))) for model in (LOOP, SLOW)}

        def working(model: str) -> bool:
            return any(slot["is_processing"] for slot in slots[model].get("/slots").json())

        for _ in range(turns):
            stream = server.client.start_chat(LOOP, stream=True, max_tokens=6000)
            stream.until(lambda it: len(it.events) > 10)
            stream.hang_up()
            decoding.append(until(lambda: not working(LOOP)))
            body = {"model": SLOW, "prompt": prompt_of(3000), "max_tokens": 4000, "stream": True}
            request = server.client.start("POST", "/v1/completions", body)
            until(lambda: working(SLOW))
            request.hang_up()
            prefill.append(until(lambda: not working(SLOW)))
    moments.hang_up_decoding, moments.hang_up_prefill = ms(middle(decoding)), ms(middle(prefill))
