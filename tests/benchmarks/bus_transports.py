"""What a token costs between a worker and a gateway on ipc, and on tcp with CURVE: time on the way, and processor time of both.

Both are on this machine, so the network itself adds nothing. One message a token, as a single stream has; the worker's process is the
module itself, the gateway's end is this process.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import zmq

from protocol import ids
from protocol.messages.events import Event, EventKind, pack_batch, unpack_batch
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from protocol.wire import curve
from protocol.wire.bus_address import ClusterMembership, MemberKeys, read_bus_address, write_membership
from tests.benchmarks.measuring import Spread, median, percentile, spread
from workers.worker.bus import WorkerBus

TOKENS: Final = 3_000
_WARM_UP: Final = 300
_PAUSE_S: Final = 0.0005
_TOPIC: Final = ids.topic("g00000001")
_CHUNK: Final = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m",'
    b'"choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}\n\n'
)
_TIME: Final = struct.Struct("=q")
_LIMIT_S: Final = 60.0


class _Round(NamedTuple):
    """Of one token, in microseconds."""

    way: float
    """From the worker's call to the gateway's receipt, median."""
    way_p99: float
    worker: float
    """Processor time of the worker, with its thread for sockets and the pause between two tokens."""
    gateway: float


class TransportCost(msgspec.Struct):
    """What a transport costs: the figures of :class:`_Round` over the rounds."""

    transport: str
    figures: dict[str, Spread]

    def row(self) -> tuple[str, ...]:
        """Return the line of the table."""
        shown = (f"{each.median:.0f} ({each.least:.0f} to {each.most:.0f})" for each in self.figures.values())
        return self.transport, *shown


def measure(rounds: int) -> list[TransportCost]:
    """Alternate between the transports."""
    seen: dict[str, list[_Round]] = {"ipc": [], "tcp with CURVE": []}
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="lb-") as folder:
        write_membership(
            Path(folder), ClusterMembership("127.0.0.1:1", curve.new_cluster_keys().of_member(), "127.0.0.1")
        )
        for _ in range(rounds):
            for transport, costs in seen.items():
                costs.append(_measured(Path(folder), transport))
    return [
        TransportCost(transport, {name: spread([getattr(cost, name) for cost in costs]) for name in _Round._fields})
        for transport, costs in seen.items()
    ]


def _measured(runtime: Path, transport: str) -> _Round:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.bus_transports", str(runtime)], stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout is not None
        endpoints = worker.stdout.readline().split()
        cluster = read_bus_address(runtime, remote=False).cluster
        assert cluster is not None
        ways, used = _read(endpoints[transport != "ipc"], cluster.keys)
        worker_used = float(worker.stdout.readline())
    return _Round(median(ways) * 1e6, percentile(ways, 0.99) * 1e6, worker_used / TOKENS * 1e6, used / TOKENS * 1e6)


def _read(endpoint: str, keys: MemberKeys) -> tuple[list[float], float]:
    """Read all tokens; return how long each was on the way, in seconds, and the processor time of this process."""
    ways = []
    with zmq.Context() as context, context.socket(zmq.SUB) as reader:
        reader.subscribe(_TOPIC)
        if endpoint.startswith("tcp:"):
            curve.use_curve(reader, endpoint, keys.member.public, keys)
        reader.connect(endpoint)
        begun = 0.0
        for number in range(_WARM_UP + TOKENS):
            if not reader.poll(_LIMIT_S * 1000):
                raise TimeoutError(f"no more tokens after {number}")
            _, (event,) = unpack_batch(reader.recv(), len(_TOPIC))
            if number == _WARM_UP:
                begun = time.process_time()
            if number >= _WARM_UP:
                ways.append((time.perf_counter_ns() - _TIME.unpack_from(event.data)[0]) / 1e9)
        return ways, time.process_time() - begun


def _publish(runtime: Path) -> None:
    """Be the worker: print the endpoints, wait for a subscription, publish, and print the processor time."""
    loop, subscribed = Loop(), []
    bus = WorkerBus(loop, ProcessContext(runtime, "b" * 12, os.getpid()), ids.peer_id("worker"))
    bus.on_subscription = lambda _joined, topic: subscribed.append(topic)
    print(bus.endpoint, bus.remote_endpoint, flush=True)
    end = time.monotonic() + _LIMIT_S
    while not subscribed and time.monotonic() < end:
        loop.run_once(0.1)
    begun = 0.0
    for number in range(_WARM_UP + TOKENS):
        if number == _WARM_UP:
            begun = time.process_time()
        event = Event(1, 1, number, EventKind.DELTA, 1, _TIME.pack(time.perf_counter_ns()) + _CHUNK)
        bus.publish(_TOPIC, pack_batch([event]))
        loop.run_once(0.0)
        time.sleep(_PAUSE_S)
    print(time.process_time() - begun, flush=True)
    bus.close(server_lives=False)
    loop.close()


if __name__ == "__main__":
    _publish(Path(sys.argv[1]))
