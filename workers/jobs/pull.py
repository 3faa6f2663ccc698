"""The job process that downloads one model: ``python -m workers.jobs.pull``.

The loop talks to the supervisor and watches it; one thread fetches, because the libraries block.  The thread
touches no socket: it writes the gauge, which the loop reads, and wakes the loop when it is through.
"""

from __future__ import annotations

import os
import signal
import threading
import traceback
from typing import Final

from protocol import logs
from protocol.admin import Progress, Pulled, PullFailed, Pulling
from protocol.failures import Code, Failure
from protocol.loop import Loop
from protocol.staff import Hello, Leave
from protocol.surroundings import Surroundings
from workers.bus import Bus
from workers.jobs.fetch import Outcome, fetch
from workers.jobs.gauge import Gauge, Reading

TELL_EVERY: Final = 0.1


class Pull:
    """One download, from Hello to its result."""

    def __init__(self, loop: Loop, bus: Bus, name: str, offline: bool) -> None:
        """Say nothing yet. ``name``: this peer's id; ``offline``: fetch nothing."""
        self._loop = loop
        self._bus = bus
        self._name = name
        self._offline = offline
        self._gauge = Gauge()
        self._told = Reading()
        self._order: Pulling | None = None
        self._outcome: Outcome | None = None
        self._through = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        bus.on_message = self._on_message
        loop.on_readable(self._through, self._finish)
        loop.every(TELL_EVERY, self._tell)

    def hello(self, boot: str) -> None:
        """Introduce this process; the order comes back."""
        self._bus.send(Hello("job", self._name, os.getpid(), boot))

    def _on_message(self, message: object, _payload: bytes) -> None:
        if isinstance(message, Pulling) and self._order is None:
            self._order = message
            threading.Thread(target=self._fetch, args=(message,), name="fetch", daemon=True).start()
        elif isinstance(message, Leave):
            self._loop.stop()

    def _fetch(self, order: Pulling) -> None:
        try:
            self._outcome = fetch(order, self._gauge, self._offline)
        except Exception:  # noqa: BLE001 - whatever it was, the waiting callers must be told
            failure = Failure(
                Code.INTERNAL, f"the download of {order.name} failed", model=order.name, detail=traceback.format_exc()
            )
            self._outcome = Outcome(PullFailed(order.name, failure), [])
        os.eventfd_write(self._through, 1)

    def _tell(self) -> None:
        reading = self._gauge.reading
        if self._order is not None and reading != self._told:
            self._told = reading
            self._bus.send(Progress(0, self._order.name, *reading))

    def _finish(self) -> None:
        os.eventfd_read(self._through)
        self._loop.stop()
        if self._outcome is None:
            return
        result, troubles = self._outcome
        log = logs.get(model=result.name)
        for kind, problem in troubles:
            log.warning("source failed", source=kind, reason=str(problem), detail=problem.detail)
        if isinstance(result, Pulled):
            self._tell()
            log.debug("files are here", files=result.files)
        else:
            log.debug("download failed", reason=result.failure.message, detail=result.failure.detail)
        self._bus.send(result)


def main() -> None:
    """Run one job to its end."""
    house = Surroundings.of_environment()
    settings = house.settings()
    logs.configure("job", settings.log_level, settings.log_format)
    loop = Loop()
    # At once: nobody waits for the files any more, and pip dies with this process.
    loop.on_death(house.supervisor, lambda: os._exit(1))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.on_signal(number, loop.stop)
    name = os.environ["LEMONBUS_PEER"]
    bus = Bus(loop, house, name)
    logs.attach(bus.log)
    Pull(loop, bus, name, settings.offline).hello(house.boot)
    loop.run()
    logs.attach(None)
    bus.close(supervisor_lives=True)
    loop.close()
    # Not through the interpreter's end: a fetch that was told to leave is still inside its library.
    os._exit(0)


if __name__ == "__main__":
    main()
