"""``python -m supervisor``: the life of one house, from the lock to the last child's end.

``lemonbus serve`` resolves the settings and hands over, as ``supervisor/opening.py`` says.  Exits 0 after an
orderly end, 1 when the house cannot be opened, 2 for bad settings; one clear line each.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from pathlib import Path

import msgspec

from protocol import RELEASE, ids, logs, memory
from protocol.failures import LemonbusError
from protocol.loop import Loop
from protocol.settings import store
from protocol.surroundings import Surroundings
from supervisor import (
    backends,
    calls,
    fetching,
    hardware,
    loading,
    opening,
    options,
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
from supervisor.listening import listen
from supervisor.removal import Removals
from supervisor.variants import Looks

log = logs.get()


def main() -> int:
    """Open the house, turn, and close it."""
    try:
        given = opening.taken(os.environ)
    except msgspec.ValidationError as problem:
        return opening.say(f"bad settings: {problem}", opening.USAGE)
    settings = given.settings
    logs.configure("supervisor", settings.log_level, settings.log_format)
    try:
        options.check_settings(settings)
        opening.directories(settings)
        runtime = opening.runtime_directory(settings)
        try:
            listener = listen(settings)
        except LemonbusError:
            runtime.release()
            raise
    except LemonbusError as problem:
        return opening.ended(given, problem.failure)
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
