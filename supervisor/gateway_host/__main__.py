"""``python -m supervisor.gateway_host``: started by ``lemonbus gateway``, which passes what it needs in an anonymous file."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from protocol.config import gateway_settings
from protocol.config.settings import Settings
from protocol.failures import Code, LemonbusError
from protocol.runtime import descriptors, logs, memory
from protocol.runtime.loop import Loop
from protocol.wire.bus_address import write_membership
from supervisor.gateway_host.host import GatewayHost
from supervisor.lifecycle import startup
from supervisor.processes.listener import bind_listener


def main() -> int:
    """Run the host until it is told to end, or the server refuses it; return the exit code."""
    given = gateway_settings.take(os.environ)
    logs.configure("gateway_host", given.log_level, given.log_format)
    descriptors.raise_limit()
    try:
        settings = Settings(host=given.host, port=given.port, runtime_dir=given.runtime_dir)
        runtime = startup.runtime_directory(settings, os.getpid())
        write_membership(runtime.path, given.membership)
        listener = bind_listener(settings, listens=False)
    except LemonbusError as problem:
        code = startup.EXIT_USAGE if problem.failure.code is Code.INVALID_REQUEST else startup.EXIT_FAILED
        return startup.print_line(str(problem), code)
    loop = Loop()
    host = GatewayHost(loop, given, Path(given.runtime_dir), listener)
    logs.set_sink(host.log)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.on_signal(number, host.stop)
    host.begin()
    memory.tune_gc()
    loop.run()
    logs.set_sink(None)
    host.close()
    listener.close()
    runtime.release()
    return startup.print_line(host.refusal, startup.EXIT_FAILED) if host.refusal else 0


if __name__ == "__main__":
    sys.exit(main())
