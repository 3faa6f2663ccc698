"""How long single events take: a swap, a crash, a hang-up; and how long health takes meanwhile. Milliseconds."""

from __future__ import annotations

import threading
import time

import msgspec

from tests.benchmarks.engine_alone import engine_alone
from tests.benchmarks.measuring import median, ms, percentile, until
from tests.support import processes
from tests.support.clients.http_client import RawHttpClient, engine_client
from tests.support.clients.http_exchange import HttpExchange
from tests.support.models.tiny_models import prompt_of
from tests.support.server import LemonbusServer

CHAT, TALES, LOOP, SLOW = "extra.tiny-chat", "extra.tiny-tale", "extra.tiny-loop", "extra.tiny-slow"


class Latencies(msgspec.Struct):
    """Medians over the turns. For the health, it is the slowest and the 99th percentile."""

    swap: float = 0.0
    engine_start: float = 0.0
    health_p99: float = 0.0
    health_worst: float = 0.0
    crash_noticed: float = 0.0
    crash_reported: float = 0.0
    crash_ready: float = 0.0
    hang_up_decoding: float = 0.0
    hang_up_prefill: float = 0.0

    @property
    def swap_over(self) -> float:
        return self.swap - self.engine_start


def measure(turns: int) -> Latencies:
    """Measure everything."""
    latencies = Latencies()
    _swaps(latencies, turns)
    _crashes(latencies, turns)
    _hang_ups(latencies, turns)
    return latencies


def _swaps(latencies: Latencies, turns: int) -> None:
    swaps: list[float] = []
    starts: list[float] = []
    healths: list[float] = []
    with LemonbusServer(
        "tiny-chat", "tiny-tale", max_loaded_models=1, log_level="info", gateway_workers=0, load=[CHAT]
    ) as server:
        server.wait_loaded(CHAT)
        for turn in range(2 * turns):
            model = (TALES, CHAT)[turn % 2]
            until(lambda: _workers(server) == 2)  # a swap right after another one would be slower
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
            with engine_alone(server.engine(model), policy=True) as (_, seconds):
                starts.append(seconds)
    latencies.swap, latencies.engine_start = ms(median(swaps)), ms(median(starts))
    latencies.health_p99, latencies.health_worst = ms(percentile(healths, 0.99)), ms(max(healths))


def _workers(server: LemonbusServer) -> int:
    """How many workers have imported everything and said hello."""
    return sum(peer["role"] == "worker" for peer in server.state()["processes"])


def _watch(server: LemonbusServer, end: threading.Event, seen: list[float]) -> None:
    client = RawHttpClient(server.port)
    while not end.wait(0.005):
        started = time.perf_counter()
        assert client.get("/v1/health").status == 200
        seen.append(time.perf_counter() - started)


def _crashes(latencies: Latencies, turns: int) -> None:
    noticed, reported, ready = [], [], []
    with LemonbusServer("tiny-loop", log_level="info", gateway_workers=0, load=[LOOP]) as server:
        for _ in range(turns):
            server.wait_loaded(LOOP)
            engine = server.engine_pid(LOOP)
            stream = server.client.start_chat(LOOP, stream=True, max_tokens=6000)
            stream.until(lambda it: len(it.events) > 10)
            reported_at: list[float] = []
            reader = threading.Thread(target=_until_client_has_error, args=(stream, reported_at))
            reader.start()
            started = time.perf_counter()
            processes.kill(engine)
            noticed.append(until(lambda: server.model_state(LOOP) != "ready"))
            until(lambda: server.model_state(LOOP) == "ready")
            ready.append(time.perf_counter() - started)
            reader.join()
            reported.append(reported_at[0] - started)
    latencies.crash_noticed, latencies.crash_reported, latencies.crash_ready = (
        ms(median(values)) for values in (noticed, reported, ready)
    )


def _until_client_has_error(stream: HttpExchange, reported_at: list[float]) -> None:
    stream.until(lambda it: '"error"' in it.events[-1].data)
    reported_at.append(time.perf_counter())
    stream.finish()


def _hang_ups(latencies: Latencies, turns: int) -> None:
    decoding, prefill = [], []
    with LemonbusServer("tiny-loop", "tiny-slow", log_level="info", gateway_workers=0, load=[LOOP, SLOW]) as server:
        server.wait_loaded(LOOP, SLOW)
        slots = {model: engine_client(server.engine(model)) for model in (LOOP, SLOW)}

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
    latencies.hang_up_decoding, latencies.hang_up_prefill = ms(median(decoding)), ms(median(prefill))
