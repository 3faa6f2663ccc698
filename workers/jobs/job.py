"""What every job process is: a loop that talks to the supervisor and its successors, and a thread for what blocks.

The thread touches no socket. The loop handles what it returns and logs; the thread wakes the loop when it is done.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from types import UnionType
from typing import Any, Final, TypeVar, cast

import msgspec

from protocol.messages.peers import Shutdown, Welcome
from protocol.messages.recovery import JobSnapshot
from protocol.models.nodes import HEAD
from protocol.runtime import logs, memory
from protocol.runtime.loop import Loop, Timer
from protocol.runtime.process_context import PEER_VARIABLE, ProcessContext
from protocol.runtime.process_exit import exit_with_parent
from protocol.wire import envelope
from workers.worker.bus import WorkerBus
from workers.worker.supervisor_link import SupervisorLink, hello

T = TypeVar("T")

_FLUSH_EVERY: Final = 0.25
_LONGEST_END: Final = 5.0
"""Seconds in which the supervisor should have taken the result."""
OnMessage = Callable[[object], None]


class JobProcess:
    """One job, from Hello to its process's end."""

    def __init__(self) -> None:
        """Connect to the server that the environment describes."""
        self.context = ProcessContext.from_environment()
        if self.context.node != HEAD:
            exit_with_parent(self.context.keeper)
        name = os.environ[PEER_VARIABLE]
        self._records: deque[bytes] = deque()
        self.settings = self.context.settings()
        logs.configure("job", self.settings.log_level, self.settings.log_format, self.context.node)
        memory.raise_oom_score(os.getpid())
        self.loop = Loop()
        self.loop.on_error = self._give_up
        for number in (signal.SIGTERM, signal.SIGINT):
            self.loop.on_signal(number, self.loop.stop)
        self.bus = WorkerBus(self.loop, self.context, name, for_gateways=False)
        self.bus.on_message = self._received
        self.on_message: OnMessage = lambda _message: None
        """Called with each message for this kind of job: its order, and `Welcome`."""
        self.on_shutdown: Callable[[], None] = lambda: None
        """Called before the end that the supervisor demands. It must be brief."""
        self._order = b""
        self._progress: msgspec.Struct | None = None
        self._result: msgspec.Struct | None = None
        self._end_timer: Timer | None = None
        self._link = SupervisorLink(
            self.loop,
            self.bus,
            self.context,
            hello("job", name, self.context),
            lambda: JobSnapshot(self._order),
            self._report_again,
            # At once: the result is no longer of use, and child processes die with this one.
            lambda: os._exit(1),
        )
        logs.set_sink(self._records.append)
        self.loop.every(_FLUSH_EVERY, self._flush)

    def _received(self, message: Any, payload: bytes) -> None:
        match message:
            case Shutdown():
                self.on_shutdown()
                self.loop.stop()
                return
            case Welcome():
                self._link.take_welcome(message)
                self._limit_end()
            case _:
                self._order = self._order or envelope.encode(message, payload)
        self.on_message(message)

    def work(self, function: Callable[[], T], done: Callable[[T], None]) -> None:
        """Run what blocks in a thread, and call ``done`` with its result in the loop. It must not raise."""
        through = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        results: list[T] = []

        def run() -> None:
            try:
                results.append(function())
            finally:
                os.eventfd_write(through, 1)

        def finish() -> None:
            os.eventfd_read(through)
            self.loop.on_readable(through, None)
            os.close(through)
            if results:
                done(results[0])
            else:
                self.loop.stop()

        self.loop.on_readable(through, finish)
        threading.Thread(target=run, name="work", daemon=True).start()

    def carry_out(
        self,
        orders: type[msgspec.Struct] | UnionType,
        work: Callable[[Any], T],
        done: Callable[[T], None] | None = None,
    ) -> None:
        """Handle the first message of these types in a thread, and exit when the supervisor says so.

        ``done`` gets the result of the work in the loop; without it, that is the job's result.
        """
        begun: list[object] = []

        def on_message(message: object) -> None:
            if isinstance(message, orders) and not begun:
                begun.append(message)
                self.work(partial(work, message), done or cast("Callable[[T], None]", self.end))

        self.on_message = on_message

    def report(self, progress: msgspec.Struct) -> None:
        """Send the progress of the work."""
        self._progress = progress
        self.bus.send(progress)

    def end(self, result: msgspec.Struct) -> None:
        """Send the result, and exit when the supervisor says so: it may notice an end before it reads the last message."""
        self._result = result
        self.bus.send(result)
        self._limit_end()

    def _limit_end(self) -> None:
        """If a supervisor is there, let it take the result within ``_LONGEST_END``."""
        if self._end_timer is not None:
            self._end_timer.cancel()
        if self._result is not None and self._link.welcomed:
            self._end_timer = self.loop.call_later(_LONGEST_END, self.loop.stop)

    def _report_again(self) -> None:
        """Tell the next supervisor the progress of the work, and its result."""
        self._limit_end()
        for message in (self._progress, self._result):
            if message is not None:
                self.bus.send(message)

    def _flush(self) -> None:
        while self._records:
            self.bus.log(self._records.popleft())

    def _give_up(self) -> None:
        """End a job whose callback raised. The supervisor notices the end of the process, and answers its caller."""
        self._flush()
        os._exit(1)

    def run(self) -> None:
        """Say Hello, run the loop until :meth:`Loop.stop`, and end the process."""
        memory.tune_gc()
        self._link.start()
        self.loop.run()
        logs.set_sink(None)
        self._flush()
        self.bus.close(server_lives=True)
        self.loop.close()
        # Without the interpreter's clean-up: an abandoned thread is still inside its library.
        os._exit(0)
