"""One worker, from its start to its exit. What it must know about its supervisor is in the environment."""

from __future__ import annotations

import os
import signal
from typing import NoReturn

from protocol.models.nodes import HEAD
from protocol.runtime import logs, memory
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import PEER_VARIABLE, ProcessContext
from protocol.runtime.process_exit import exit_immediately, exit_with_parent
from workers.worker.bus import WorkerBus
from workers.worker.control import WorkerController


def main() -> NoReturn:
    """Run until `Shutdown`, a signal, or the end of the grace period after the keeper's death."""
    context = ProcessContext.from_environment()
    if context.node != HEAD:
        exit_with_parent(context.keeper)
    settings = context.settings()
    name = os.environ[PEER_VARIABLE]
    logs.configure("worker", settings.log_level, settings.log_format, context.node)
    loop = Loop()
    try:
        bus = WorkerBus(loop, context, name, ports=settings.worker_ports)
    except OSError as problem:
        logs.get_logger().error("worker cannot listen", reason=problem.strerror)
        exit_immediately(1)
    logs.set_sink(bus.log)
    controller = WorkerController(loop, bus, context, settings, name)
    # On other nodes the agent says so, if it is to end itself and there is no supervisor.
    grace = 0.0 if context.node == HEAD else settings.grace
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.on_signal(number, lambda: controller.leave(grace, "the worker was told to end"))
    memory.raise_oom_score(os.getpid())
    controller.start()
    memory.tune_gc()
    loop.run()
    logs.set_sink(None)
    bus.close(controller.server_lives)
    loop.close()
    exit_immediately(controller.exit_code)
