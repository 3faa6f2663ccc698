"""Orders to the fork server to start workers and jobs, and its client in the supervisor.

The channel is a pair of sockets like the keeper's. An order is carried out once or not at all: the new process
announces itself before it does anything else, and ends if the supervisor no longer listens. A fork server that has
ended, hangs or is stopped is given up: its orders are given back, and the processes are started without it. If it is
still running, it notices that its channel was closed and tells the keeper, which gives the supervisor another channel
to it.
"""

from __future__ import annotations

import contextlib
import enum
import itertools
import os
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from protocol import RELEASE
from protocol.runtime import logs
from protocol.runtime.loop import Loop, Timer
from protocol.state_table import next_state
from supervisor.keeper.channel import Channel, ClosedError
from supervisor.processes import environment_block

# Supervisor → fork server
FORK: Final = "fork"
"""``fork NUMBER MODULE``: run this module in a new process; the descriptor is a file with its environment."""

# New process → supervisor
FORKED: Final = "forked"
"""``forked NUMBER PID``: the new process runs; the descriptor is its pidfd."""

# Fork server → supervisor
SERVES: Final = "serves"
"""``serves RELEASE``: the first word. Everything it forks is of this release."""
FAILED: Final = "failed"
"""``failed NUMBER WHY``: no process can be started."""
BROKEN: Final = "broken"
"""``broken WHY``: no order is carried out from now on, including the unanswered ones."""

IMPORTS: Final[Mapping[str, tuple[str, ...]]] = {
    "workers": ("workers.__main__", "workers.worker.main"),
    "workers.jobs.describe": ("workers.jobs.describe",),
    "workers.jobs.probe": ("workers.jobs.probe",),
    "workers.jobs.list_remotes": ("workers.jobs.list_remotes",),
    "workers.jobs.read_devices": ("workers.jobs.read_devices",),
    "workers.jobs.remove": ("workers.jobs.remove",),
}
"""Module that can be forked → what the fork server imports for it.

This must be all of our code that the module needs, including the module itself: a process that imported the rest later
would mix two releases after another one was installed. The missing jobs need large libraries, and are seldom started.
"""

DEADLINE_S: Final = 3.0
"""How long an order may take. On a loaded machine the fork server may still be importing modules."""

_LONGEST_REASON: Final = 200

log = logs.get_logger()


class ForkCallbacks(NamedTuple):
    """The outcome of an order. Exactly one of the three is called, later."""

    started: Callable[[int, int], None]
    """Called with the pid and the pidfd of the new process, which the callee owns."""
    failed: Callable[[str], None]
    """Called with the reason why no process can be started."""
    given_back: Callable[[], None]
    """Called if the fork server did not carry out the order, and will not."""


class ClientState(enum.Enum):
    """What a supervisor can do with a fork server."""

    WAITING = enum.auto()
    """It has not said yet what it can fork."""
    USABLE = enum.auto()
    OTHER_RELEASE = enum.auto()
    """It forks another release, and is not used.

    The channel stays open: otherwise the keeper would give this supervisor another one to the same fork server.
    """
    GIVEN_UP = enum.auto()
    """The channel is closed."""


class ClientEvent(enum.Enum):
    """What changes that."""

    SERVES = enum.auto()
    """It forks this release."""
    SERVES_OTHER = enum.auto()
    GIVE_UP = enum.auto()


TRANSITIONS: Final[dict[ClientState, dict[ClientEvent, ClientState]]] = {
    ClientState.WAITING: {
        ClientEvent.SERVES: ClientState.USABLE,
        ClientEvent.SERVES_OTHER: ClientState.OTHER_RELEASE,
        ClientEvent.GIVE_UP: ClientState.GIVEN_UP,
    },
    ClientState.USABLE: {ClientEvent.GIVE_UP: ClientState.GIVEN_UP},
    ClientState.OTHER_RELEASE: {ClientEvent.GIVE_UP: ClientState.GIVEN_UP},
    ClientState.GIVEN_UP: {},
}


class ForkServerClient:
    """One supervisor's connection to a fork server."""

    def __init__(self, loop: Loop, end: Channel) -> None:
        """Take over the end, and read it from now on."""
        self._loop, self._channel = loop, end
        self._numbers = itertools.count(1)
        self._orders: dict[int, tuple[ForkCallbacks, Timer]] = {}
        self._state = ClientState.WAITING
        loop.on_readable(end.fileno(), self.read)

    def fork(self, module: str, environment: Mapping[str, str], forked: ForkCallbacks) -> bool:
        """Order a process that runs a module; return False if it cannot be forked, or the order could not be given."""
        if self._state is ClientState.WAITING:
            self.read()
        if self._state is not ClientState.USABLE or module not in IMPORTS:
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
        self._orders[number] = forked, self._loop.call_later(DEADLINE_S, lambda: self._overdue(number))
        return True

    def _overdue(self, number: int) -> None:
        """Give up if there is no answer. It may have come while this process itself did not run."""
        self.read()
        if number in self._orders:
            self.give_up(f"it did not answer within {DEADLINE_S:g} s")

    def read(self) -> None:
        """Read what was answered."""
        try:
            while self._state is not ClientState.GIVEN_UP and (received := self._channel.receive()):
                why = self._handle(*received)
                if why:
                    self.give_up(why)
        except ClosedError:
            self.give_up("it has ended")

    def _handle(self, word: str, arguments: str, descriptor: int) -> str:
        """Handle a message; return why the fork server can no longer be used, empty if it can."""
        number, _, rest = arguments.partition(" ")
        order = int(number) if number.isdecimal() else 0
        if word == FORKED and order in self._orders and rest.isdecimal():
            self._answered(order).started(int(rest), descriptor)
            return ""
        if descriptor >= 0:
            os.close(descriptor)
        if word == FAILED and order in self._orders:
            self._answered(order).failed(rest)
        elif word == SERVES and arguments == RELEASE and self._state is ClientState.WAITING:
            self._transition(ClientEvent.SERVES)
        elif word == SERVES and arguments and self._state is ClientState.WAITING:
            self._transition(ClientEvent.SERVES_OTHER)
            log.warning("the fork server is not used: another release was installed", release=arguments)
        elif word == BROKEN:
            return f"it cannot carry out the order: {arguments}"
        else:
            return f"its answer is not understood: {word} {arguments}"[:_LONGEST_REASON]
        return ""

    def _transition(self, event: ClientEvent) -> None:
        self._state = next_state(TRANSITIONS, self._state, event)

    def _answered(self, order: int) -> ForkCallbacks:
        forked, timer = self._orders.pop(order)
        timer.cancel()
        return forked

    def give_up(self, why: str) -> None:
        """Accept only answers that were already given, and give back all other orders. Idempotent."""
        if self._state is ClientState.GIVEN_UP:
            return
        self._transition(ClientEvent.GIVE_UP)
        self._channel.refuse()
        with contextlib.suppress(ClosedError):
            while received := self._channel.receive():
                why = self._handle(*received) or why
        self._loop.on_readable(self._channel.fileno(), None)
        self._channel.close()
        log.warning("the fork server is not used any more", reason=why, orders=len(self._orders))
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
