"""The worker's bus: what it answers by itself, over real ZeroMQ."""

from __future__ import annotations

import os
import time
from pathlib import Path

import zmq

from protocol import ids
from protocol.messages.peers import Ping, Pong
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from protocol.wire import endpoints, envelope
from workers.worker.bus import WorkerBus

DEADLINE = 5.0


def test_a_pong_reports_new_errors_once(tmp_path: Path) -> None:
    runtime = endpoints.RuntimeDirectory(tmp_path / "rt")
    context = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.bind(endpoints.bus(runtime.path))
    loop = Loop()
    name = ids.peer_id("worker")
    bus = WorkerBus(loop, ProcessContext(runtime.path, ids.boot_id(), os.getpid()), name)

    def ping(number: int) -> Pong:
        router.send_multipart([name.encode(), envelope.encode(Ping(number))])
        end = time.monotonic() + DEADLINE
        while not router.poll(0):
            assert time.monotonic() < end
            loop.run_once(0.01)
        answer: Pong = envelope.decode(router.recv_multipart()[1])[0]
        return answer

    try:
        bus.send(Pong(0))
        assert router.poll(1000 * DEADLINE)
        router.recv_multipart()
        assert ping(1) == Pong(1)
        loop.errors += 2
        assert ping(2) == Pong(2, errors=2)
        assert ping(3) == Pong(3)
    finally:
        bus.close(supervisor_lives=False)
        loop.close()
        context.destroy(0)
        runtime.release()
