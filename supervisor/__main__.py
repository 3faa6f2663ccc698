"""``python -m supervisor``: the life of one house, from the lock to the last child's end.

The settings come as JSON in ``LEMONBUS_SETTINGS`` (``lemonbus serve`` resolves them and hands over).  Exits 0
after an orderly end, 1 when the house cannot be opened, 2 for bad settings; one clear line each.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
import time
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from protocol import RELEASE, ids, logs, memory
from protocol.endpoints import RuntimeDirectory
from protocol.failures import Code, Failure, LemonbusError
from protocol.loop import Loop
from protocol.settings import Settings, store
from protocol.surroundings import Surroundings
from supervisor import (
    backends,
    calls,
    fetching,
    hardware,
    loading,
    params,
    pulling,
    requests,
    runnable,
    staffing,
)
from supervisor.closing import Closing
from supervisor.greeting import Greeting
from supervisor.house import House
from supervisor.inspection import Inspection
from supervisor.installing import Installs
from supervisor.removal import Removals
from supervisor.variants import Looks

BIND_PATIENCE_S: Final = 2.0

log = logs.get()


def listen(settings: Settings) -> socket.socket:
    """Bind the gateway's listener; raises a ``conflict`` failure if somebody else has the port."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        _bind(listener, settings)
        listener.listen(4096)
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise Failure(
            Code.CONFLICT,
            f"cannot listen on {settings.host}:{settings.port}: {reason}; stop what listens there, or choose another --port",
        ).raised() from problem
    listener.set_inheritable(True)
    return listener


def _bind(listener: socket.socket, settings: Settings) -> None:
    """Bind, with a little patience: the gateways of a house that was just killed close theirs within a second."""
    end = time.monotonic() + BIND_PATIENCE_S
    while True:
        try:
            listener.bind((settings.host, settings.port))
        except OSError as problem:
            if problem.errno != errno.EADDRINUSE or time.monotonic() > end:
                raise
            time.sleep(0.05)
        else:
            return


def _say(line: str, code: int) -> int:
    os.write(2, f"lemonbus: {line}\n".encode())
    return code


def main() -> int:
    """Open the house, turn, and close it."""
    try:
        settings = msgspec.json.decode(os.environ.pop("LEMONBUS_SETTINGS", "{}"), type=Settings)
    except msgspec.ValidationError as problem:
        return _say(f"bad settings: {problem}", 2)
    logs.configure("supervisor", settings.log_level, settings.log_format)
    try:
        runtime = RuntimeDirectory(Path(settings.runtime_dir))
        try:
            listener = listen(settings)
        except LemonbusError:
            runtime.release()
            raise
    except (LemonbusError, OSError) as problem:
        return _say(str(problem), 1)
    store(settings, runtime.path)
    loop = Loop()
    surroundings = Surroundings(runtime.path, ids.boot_id(), os.getpid())
    house = House(settings, surroundings, loop, listener.fileno())
    house.fetch = partial(fetching.fetch_for_scheduler, house)
    closing = Closing(house)
    loop.on_signal(signal.SIGTERM, closing.begin)
    loop.on_signal(signal.SIGINT, closing.begin)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup means it
        loop.on_signal(signal.SIGHUP, closing.begin)
    log.info("starting", version=RELEASE, url=settings.base_url, boot=surroundings.boot, runtime=str(runtime.path))
    defaults = params.Defaults(Path(settings.state_dir) / params.FILE, house.models.problems.append)
    known = backends.Backends(settings)
    for wrong in known.releases.problems:
        log.warning("backend releases", problem=wrong)
    inspection = Inspection(hardware.machine(settings.machine_dir), known.recipes)
    house.models.machine = runnable.machine_of(inspection.machine)
    installs = Installs(known, lambda: inspection.machine.devices)
    house.open(
        {
            **staffing.HANDLERS,
            **requests.HANDLERS,
            **fetching.HANDLERS,
            **calls.HANDLERS,
            **pulling.HANDLERS,
            **Removals().handlers(),
            **loading.HANDLERS,
            **defaults.handlers(),
            **inspection.handlers(),
            **installs.handlers(),
            **Looks().handlers(),
        }
    )
    greeting = Greeting(house)
    greeting.warn()
    greeting.load()
    memory.settle()
    loop.run()
    log.info("stopped")
    logs.attach(None)
    house.bus.close()
    runtime.release()
    return 0


if __name__ == "__main__":
    sys.exit(main())
