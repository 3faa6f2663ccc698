"""Starts one worker: ``python -m workers``, with its place in the house in the environment."""

from __future__ import annotations

import os
import signal
import sys

from protocol import logs, memory
from protocol.loop import Loop
from protocol.surroundings import Surroundings
from workers.boss import Boss
from workers.bus import Bus


def main() -> int:
    """Run until told to leave; return the exit code."""
    house = Surroundings.of_environment()
    settings = house.settings()
    name = os.environ["LEMONBUS_PEER"]
    logs.configure("worker", settings.log_level, settings.log_format)
    loop = Loop()
    bus = Bus(loop, house, name)
    logs.attach(bus.log)
    boss = Boss(loop, bus, house, settings, name)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.on_signal(number, lambda: boss.leave(0.0, "the worker was told to end"))
    boss.start(os.getpid())
    memory.settle()
    loop.run()
    logs.attach(None)
    bus.close(boss.supervisor_lives)
    loop.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
