"""Orders to the fork server to start workers and jobs, and its client in the supervisor.

The channel is a pair of sockets as the keeper has them.  An order is carried out once or not at all: the new process
announces itself before it does anything else, and ends if the supervisor does not listen any more.  A fork server that has
ended, hangs or is stopped is not used again: what it owes is given back, to be started without it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from protocol.runtime import logs
from protocol.runtime.loop import Loop, Timer
from supervisor.keeper.channel import Channel, ClosedError
from supervisor.processes import environment_block

# Supervisor → fork server
FORK: Final = "fork"
"""``fork NUMBER MODULE``: run this module in a new process; the descriptor is a file with its environment."""

# New process → supervisor
FORKED: Final = "forked"
"""``forked NUMBER PID``: the new process runs; the descriptor is its pidfd."""

# Fork server → supervisor
FAILED: Final = "failed"
"""``failed NUMBER WHY``: no process can be started."""

IMPORTS: Final[Mapping[str, str]] = {
    "workers": "workers.worker.main",
    "workers.jobs.describe": "workers.jobs.describe",
    "workers.jobs.probe": "workers.jobs.probe",
    "workers.jobs.remove": "workers.jobs.remove",
}
"""Module that can be forked → what the fork server imports for it.

It must be all that the module needs of our code: a process that imports the rest later would mix two releases after another one
was installed.  The jobs that are missing here need large libraries, and are seldom started.
"""

DEADLINE_S: Final = 3.0
"""How long an order may take; on a loaded machine the fork server may still import modules."""

log = logs.get_logger()


class Forked(NamedTuple):
    """What comes of an order; one of the three is called, once, later."""

    started: Callable[[int, int], None]
    """With the pid and the pidfd of the new process, which the callee owns."""
    failed: Callable[[str], None]
    """With the reason why no process can be started."""
    given_back: Callable[[], None]
    """The fork server did not carry the order out, and will not."""


class ForkServerClient:
    """One supervisor's connection to a fork server."""

    def __init__(self, loop: Loop, end: Channel) -> None:
        """Take the end over, and read it from now on."""
        self._loop, self._channel = loop, end
        self._numbers = itertools.count(1)
        self._orders: dict[int, tuple[Forked, Timer]] = {}
        self.usable = True
        loop.on_readable(end.fileno(), self.read)

    def fork(self, module: str, environment: Mapping[str, str], forked: Forked) -> bool:
        """Order a process that runs a module; return False if it cannot be forked, or the order could not be given."""
        if not self.usable or module not in IMPORTS:
            return False
        number = next(self._numbers)
        try:
            block = _file(environment_block.pack(environment))
        except OSError:
            return False
        try:
            if not self._channel.send(FORK, f"{number} {module}", block):
                return False
        finally:
            os.close(block)
        timer = self._loop.call_later(DEADLINE_S, lambda: self.give_up(f"it did not answer within {DEADLINE_S:g} s"))
        self._orders[number] = forked, timer
        return True

    def read(self) -> None:
        """Read what was answered."""
        if not self.usable:
            return
        try:
            self._read()
        except ClosedError:
            self.give_up("it has ended")

    def _read(self) -> None:
        while received := self._channel.receive():
            word, arguments, descriptor = received
            number, _, rest = arguments.partition(" ")
            forked, timer = self._orders.pop(int(number))
            timer.cancel()
            if word == FORKED:
                forked.started(int(rest), descriptor)
            else:
                forked.failed(rest)

    def give_up(self, why: str) -> None:
        """Take no answer from now on, but those that were given before; give back all other orders. Idempotent."""
        if not self.usable:
            return
        self._channel.refuse()
        with contextlib.suppress(ClosedError):
            self._read()
        self.usable = False
        self._loop.on_readable(self._channel.fileno(), None)
        self._channel.close()
        log.warning("the fork server is not used any more", why=why, orders=len(self._orders))
        orders, self._orders = self._orders, {}
        for forked, timer in orders.values():
            timer.cancel()
            forked.given_back()


def _file(content: bytes) -> int:
    """Return a file in memory."""
    file = os.memfd_create("lemonbus-environment")
    try:
        with os.fdopen(os.dup(file), "wb") as writer:
            writer.write(content)
    except BaseException:
        os.close(file)
        raise
    return file


def read_environment(file: int) -> dict[str, str]:
    """Return the environment of an order."""
    return environment_block.parse(os.pread(file, os.fstat(file).st_size, 0))
