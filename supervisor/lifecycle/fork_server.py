"""The fork server: has imported all of the supervisor's modules, and forks a supervisor when the keeper says so.

It also forks workers and jobs for the present supervisor, after it has imported what they need. Everything it forks
becomes a child of the keeper, and outlives the fork server. It opens no ZeroMQ socket, starts no thread and has no
loop, because a fork would not have working copies of them.
"""

from __future__ import annotations

import enum
import errno
import importlib
import itertools
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

from protocol import RELEASE
from protocol.runtime import descriptors, memory
from protocol.state_table import next_state
from supervisor.keeper import channel, process_tree
from supervisor.keeper.channel import Channel, ClosedError
from supervisor.lifecycle import forked_process, main
from supervisor.lifecycle.keeper_client import KeeperClient
from supervisor.processes import fork_orders

_IDLE_MS: Final = 1000
"""A fork server without orders for this long imports what workers need: later, these files might be another release's."""
_BROKEN_VARIABLE: Final = "LEMONBUS_FORK_SERVER_BROKEN"
"""Why a fork server that has restarted itself forks no workers."""


def run(keeper: Channel) -> None:
    """Fork supervisors, and processes for them, until the keeper closes the channel."""
    process_tree.set_name("lemonbus-fork")
    broken = os.environ.pop(_BROKEN_VARIABLE, "")
    # The keeper answers signals to a whole control group.
    signal.signal(signal.SIGHUP, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    descriptors.raise_limit()
    memory.tune_gc()
    _check_threads()
    keeper.send(channel.PREPARED)
    fork_server = ForkServerLoop(keeper, broken)
    try:
        while True:
            fork_server.serve()
    except ClosedError:
        return
    except ThreadsError as problem:
        _begin_again(keeper, str(problem))


class ImportState(enum.Enum):
    """Whether this process has imported what workers and jobs need."""

    PENDING = enum.auto()
    """Not yet: only supervisors can be forked."""
    DONE = enum.auto()
    BROKEN = enum.auto()
    """It cannot be imported: workers are started without this process, and report the problem."""


class ImportEvent(enum.Enum):
    """What changes that."""

    IMPORTED = enum.auto()
    FAILED = enum.auto()


TRANSITIONS: Final[dict[ImportState, dict[ImportEvent, ImportState]]] = {
    ImportState.PENDING: {ImportEvent.IMPORTED: ImportState.DONE, ImportEvent.FAILED: ImportState.BROKEN},
    ImportState.DONE: {},
    ImportState.BROKEN: {},
}


class ThreadsError(Exception):
    """An imported module has started threads, which a forked process would not have."""


def _check_threads() -> None:
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads != 1:
        raise ThreadsError(f"a module has started {threads - 1} threads: they would be missing in a forked process")


def _begin_again(keeper: Channel, broken: str) -> NoReturn:
    """Become a fork server that imports nothing for workers: nothing may be forked from this process any more.

    The keeper need not know: its orders are read when everything is imported again.
    """
    os.environ[_BROKEN_VARIABLE] = broken
    os.environ[channel.VARIABLE] = str(keeper.fileno())
    os.set_inheritable(keeper.fileno(), True)
    os.execv(sys.executable, sys.orig_argv)  # noqa: S606 - the same program


class ForkServerLoop:
    """The channels that it reads: the keeper's, and the present supervisor's."""

    def __init__(self, keeper: Channel, broken: str = "") -> None:
        self._keeper = keeper
        self._orders: Channel | None = None
        self._number = ""
        """The keeper's number for the channel of orders."""
        self._imports = ImportState.BROKEN if broken else ImportState.PENDING
        self._why_broken = broken

    def serve(self) -> None:
        """Wait for orders, and carry them out; raises ``ClosedError`` when the keeper is gone.

        What workers need is imported while the first supervisor starts, so that it need not wait for this.
        """
        poll = select.poll()
        poll.register(self._keeper, select.POLLIN)
        if self._orders is not None:
            poll.register(self._orders, select.POLLIN)
        if not poll.poll(_IDLE_MS if self._imports is ImportState.PENDING else None):
            self._import_once()
        while received := self._keeper.receive():
            word, number, descriptor = received
            if word == channel.SERVE and descriptor >= 0:
                self._take_orders(Channel(socket.socket(fileno=descriptor)))
                self._number = number
            elif word == channel.SERVE:  # this process has too many open files, and did not get it
                self._keeper.send(channel.CLOSED, number)
            elif word == channel.START and descriptor >= 0:
                self._fork_supervisor(descriptor)
                self._import_once()
        try:
            while self._orders is not None and (received := self._orders.receive()):
                self._carry_out(self._orders, *received)
        except ClosedError:
            self._take_orders(None)
            self._keeper.send(channel.CLOSED, self._number)

    def close(self) -> None:
        """Stop listening: this process was forked, and is another one."""
        self._keeper.close()
        self._take_orders(None)

    def _take_orders(self, orders: Channel | None) -> None:
        """Take orders only from this channel: the former supervisor has ended, or another one is started."""
        if self._orders is not None:
            self._orders.close()
        self._orders = orders
        if orders is not None:
            orders.send(fork_orders.SERVES, RELEASE)
        if self._imports is ImportState.BROKEN:
            self._refuse_orders()

    def _refuse_orders(self) -> None:
        """Say why no orders are carried out.

        The keeper does not hear that the channel is closed: another one would not help.
        """
        if self._orders is not None:
            self._orders.send(fork_orders.BROKEN, self._why_broken)
            self._orders.close()
            self._orders = None

    def _import_once(self) -> None:
        if self._imports is not ImportState.PENDING:
            return
        memory.pause_gc()
        try:
            for module in itertools.chain(*fork_orders.IMPORTS.values()):
                importlib.import_module(module)
            _check_threads()
            self._transition(ImportEvent.IMPORTED)
        except Exception as problem:  # noqa: BLE001 - supervisors can be forked anyway, unless there are threads
            self._why_broken = f"{type(problem).__name__}: {problem}"
            self._transition(ImportEvent.FAILED)
            self._refuse_orders()
            _check_threads()
        memory.tune_gc()

    def _transition(self, event: ImportEvent) -> None:
        self._imports = next_state(TRANSITIONS, self._imports, event)

    def _fork_supervisor(self, descriptor: int) -> None:
        """Start a supervisor. If that fails, the keeper reads why on the channel meant for the supervisor."""

        def become(_parent: int) -> NoReturn:
            self.close()
            forked_process.run_and_exit(partial(_run_supervisor, descriptor))

        error = _fork_twice(become)
        end = Channel(socket.socket(fileno=descriptor))
        if error:
            end.send(channel.LAST_WORDS, f"no process can be started: {os.strerror(error)}")
        end.close()

    def _carry_out(self, orders: Channel, word: str, arguments: str, descriptor: int) -> None:
        """Start a process in the same way; it announces itself."""
        number, _, module = arguments.partition(" ")
        if word != fork_orders.FORK:
            if descriptor >= 0:
                os.close(descriptor)
            return
        if descriptor < 0:  # this process has too many open files, and did not get it
            orders.send(fork_orders.FAILED, f"{number} {os.strerror(errno.EMFILE)}")
            return
        self._import_once()
        if self._imports is ImportState.BROKEN:
            os.close(descriptor)
            return
        try:
            environment = fork_orders.read_environment(descriptor)
        except OSError as problem:
            error = problem.errno or errno.EIO
        else:

            def become(parent: int) -> NoReturn:
                self._keeper.close()
                forked_process.become(orders, number, module, environment, parent)

            error = _fork_twice(become)
        finally:
            os.close(descriptor)
        if error:
            orders.send(fork_orders.FAILED, f"{number} {os.strerror(error)}")


def _fork_twice(become: Callable[[int], NoReturn]) -> int:
    """Fork a process that becomes a child of the keeper: its parent, forked in between, ends at once.

    ``become``: what the process runs, given the pid of that parent. Returns the number of the error, 0 if there was
    none.
    """
    try:
        between = os.fork()
        if between == 0:
            _fork_again(become)
        _, status = os.waitpid(between, 0)
    except OSError as problem:
        return problem.errno or errno.EIO
    return max(0, os.waitstatus_to_exitcode(status))


def _fork_again(become: Callable[[int], NoReturn]) -> NoReturn:
    """Fork the process itself, and exit with the number of the error if that fails."""
    parent = os.getpid()
    error = 0
    try:
        if os.fork() == 0:
            become(parent)
    except OSError as problem:
        error = problem.errno or errno.EIO
    finally:
        os._exit(error)


def _run_supervisor(descriptor: int) -> int:
    process_tree.set_name("lemonbus-superv")
    os.setsid()  # it outlives the group of the fork server
    try:
        client = KeeperClient(Channel(socket.socket(fileno=descriptor)))
        try:
            return main.run(client)
        except Exception as problem:
            client.last_words(f"{type(problem).__name__}: {problem}")
            raise
    except ClosedError:
        return 1  # there is no keeper to serve
