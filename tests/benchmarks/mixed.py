"""Requests for more models than fit: a seeded Poisson trace, through lemonbus and beside first come, first served.

Both sides get the same trace, and start engines in the same way: with one command line, one scheduling policy, each in a
session of its own. On the other side, the engines are asked directly, in the strict order of arrival: a request waits
for all that came before it to begin, and a model that must be evicted for it ends its requests first. A real proxy
would add its own time to that.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tests.benchmarks.engine_alone import EngineCommand, is_healthy
from tests.benchmarks.measuring import Spread, percentile, spread, until
from tests.support.clients.http_client import RawHttpClient
from tests.support.models.tiny_models import tiny_models
from tests.support.ports import free_port
from tests.support.server import LemonbusServer

MODELS: Final = 3
PLACES: Final = (1, 2)
"""How many of the models may be loaded at once."""
RATE: Final = 1.5
"""Requests a second."""
SECONDS: Final = 60.0
TOKENS: Final = 32
_PATIENCE_S: Final = 300.0


class Arrival(NamedTuple):
    """A request of a trace: when it comes, in seconds from the start, and for which model, by its number."""

    at: float
    model: int


class RequestTimes(NamedTuple):
    """Seconds from the arrival of a request to its first token and to its end."""

    first: float
    end: float


class TraceResult(msgspec.Struct):
    """One trace through one side. Seconds."""

    first: list[float]
    """p50, p95, worst."""
    end: list[float]
    """The same, to the end of the answer."""
    loads: float
    """For each request."""
    broken: int


class MixedComparison(msgspec.Struct):
    """Both sides in each round, for one number of places."""

    places: int
    requests: int
    lemonbus: list[TraceResult]
    in_order: list[TraceResult]
    """First come, first served."""

    def ratio(self, what: str, index: int) -> Spread:
        """Return lemonbus's figure as a part of the other side's, over the rounds. ``index``: 0 p50, 1 p95, 2 worst."""
        pairs = zip(self.lemonbus, self.in_order, strict=True)
        return spread([getattr(ours, what)[index] / getattr(theirs, what)[index] for ours, theirs in pairs])


def trace(seed: int, rate: float = RATE, seconds: float = SECONDS, models: int = MODELS) -> list[Arrival]:
    """Return a Poisson process whose requests are for models drawn at random. Pure."""
    drawn = random.Random(seed)
    arrivals, at = [], drawn.expovariate(rate)
    while at < seconds:
        arrivals.append(Arrival(at, drawn.randrange(models)))
        at += drawn.expovariate(rate)
    return arrivals


def measure(rounds: int, model: Path | None = None) -> list[MixedComparison]:
    """Measure copies of tiny-slow, or of the GGUF file of a real model."""
    file = model or tiny_models() / "models" / "tiny-slow.gguf"
    with tempfile.TemporaryDirectory() as folder:
        for number in range(MODELS):
            shutil.copyfile(file, Path(folder) / f"{_name(number)}.gguf")
        return [_compare(Path(folder), places, rounds) for places in PLACES]


def _name(number: int) -> str:
    return f"mixed-{number}"


def _compare(folder: Path, places: int, rounds: int) -> MixedComparison:
    with LemonbusServer(
        extra_models_dir=str(folder), max_loaded_models=places, log_level="info", gateway_workers=1
    ) as server:
        model = f"extra.{_name(0)}"
        assert server.client.chat(model, _PATIENCE_S, max_tokens=1).status == 200
        command = EngineCommand.of(server.engine(model))
        result = MixedComparison(places, 0, [], [])
        for number in range(rounds):
            arrivals = trace(number)
            result.requests += len(arrivals)
            result.lemonbus.append(_through_lemonbus(server, arrivals))
            result.in_order.append(_in_order(command, folder, places, arrivals))
    return result


def _through_lemonbus(server: LemonbusServer, arrivals: list[Arrival]) -> TraceResult:
    _unload(server)
    before = _loads(server)
    times = replay(arrivals, lambda arrival, began: ask(server.client, f"extra.{_name(arrival.model)}", began))
    result = _result(times, _loads(server) - before)
    _unload(server)
    return result


def _unload(server: LemonbusServer) -> None:
    assert server.client.post("/v1/unload", {}, _PATIENCE_S).status == 200


def _loads(server: LemonbusServer) -> int:
    return sum(line["event"] == "model ready" for line in server.lines)


def _in_order(command: EngineCommand, folder: Path, places: int, arrivals: list[Arrival]) -> TraceResult:
    files = [folder / f"{_name(number)}.gguf" for number in range(MODELS)]
    with engines_in_order(command, files, places) as engines:
        times = replay(arrivals, engines.ask)
        return _result(times, engines.loads)


def ask(client: RawHttpClient, model: str, began: float) -> RequestTimes | None:
    """Ask for an answer of a fixed length; return its times, None if it is broken. ``began``: when the request came."""
    body = {"messages": [{"role": "user", "content": "Count."}], "ignore_eos": True}
    with contextlib.suppress(AssertionError, OSError):
        stream = client.start_chat(model, stream=True, max_tokens=TOKENS, **body)
        stream.until(lambda it: bool(it.events and it.text), _PATIENCE_S)
        first = time.perf_counter() - began
        stream.finish(_PATIENCE_S)
        if stream.done:
            return RequestTimes(first, time.perf_counter() - began)
    return None


def replay(arrivals: list[Arrival], send: Callable[[Arrival, float], RequestTimes | None]) -> list[RequestTimes | None]:
    """Send each request when it comes, whatever became of the others; return the times of all, in their order."""
    found: list[RequestTimes | None] = [None] * len(arrivals)

    def run(index: int, began: float) -> None:
        found[index] = send(arrivals[index], began)

    threads = []
    started = time.perf_counter()
    for index, arrival in enumerate(arrivals):
        time.sleep(max(0.0, started + arrival.at - time.perf_counter()))
        threads.append(threading.Thread(target=run, args=(index, time.perf_counter())))
        threads[-1].start()
    for thread in threads:
        thread.join(_PATIENCE_S)
    return found


def _result(times: list[RequestTimes | None], loads: int) -> TraceResult:
    whole = [each for each in times if each is not None]
    columns = [each.first for each in whole], [each.end for each in whole]
    first, end = ([percentile(column, 0.5), percentile(column, 0.95), max(column)] for column in columns)
    return TraceResult(first, end, loads / len(times), len(times) - len(whole))


class EnginesInOrder:
    """Some engines, at most ``places`` at once, that serve requests strictly in their order of arrival."""

    def __init__(self, command: EngineCommand, files: list[Path], places: int) -> None:
        self.loads = 0
        self._command, self._files, self._places = command, files, places
        self._running: dict[int, tuple[subprocess.Popen[bytes], int]] = {}
        """Model → its engine and port, the one used last at the end."""
        self._busy: dict[int, int] = {}
        self._queue: deque[object] = deque()
        self._changed = threading.Condition()

    def ask(self, arrival: Arrival, began: float) -> RequestTimes | None:
        """Wait for its turn and for its model, then ask the engine."""
        turn = object()
        with self._changed:
            self._queue.append(turn)
            self._changed.wait_for(lambda: self._queue[0] is turn, _PATIENCE_S)
            if arrival.model not in self._running:
                self._load(arrival.model)
            engine = self._running[arrival.model] = self._running.pop(arrival.model)
            self._busy[arrival.model] = self._busy.get(arrival.model, 0) + 1
            self._queue.popleft()
            self._changed.notify_all()
        client = RawHttpClient(engine[1])
        try:
            return ask(client, "", began)
        finally:
            client.close()
            with self._changed:
                self._busy[arrival.model] -= 1
                self._changed.notify_all()

    def _load(self, model: int) -> None:
        """Start an engine, in place of the one that was used longest ago."""
        if len(self._running) >= self._places:
            oldest = next(iter(self._running))
            self._changed.wait_for(lambda: not self._busy[oldest], _PATIENCE_S)
            process, _ = self._running.pop(oldest)
            process.terminate()
            process.wait(10)
        port = free_port()
        client = RawHttpClient(port)
        process = self._command.start(port, self._files[model], policy=True, session=True)
        self._running[model] = process, port
        self._busy.setdefault(model, 0)
        until(lambda: is_healthy(client), _PATIENCE_S)
        client.close()
        self.loads += 1

    def close(self) -> None:
        for process, _ in self._running.values():
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)


@contextmanager
def engines_in_order(command: EngineCommand, files: list[Path], places: int) -> Iterator[EnginesInOrder]:
    """Serve requests first come, first served; end the engines afterwards."""
    engines = EnginesInOrder(command, files, places)
    try:
        yield engines
    finally:
        engines.close()
