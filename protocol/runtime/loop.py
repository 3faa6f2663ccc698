"""The event loop of the supervisor, the workers and the jobs: sockets, ended processes, timers, signals.

One thread, epoll, no framework. The descriptor of a ZeroMQ socket signals by an edge that *something* happened to the
socket, and any use of the socket may consume that edge. So before it sleeps, the loop asks each socket that was used
since. This costs a fraction of ``zmq_poll``, which asks all sockets twice.

A callback must not block. A callback that raises is a programming error: the loop logs the traceback, counts it in
:attr:`Loop.errors`, calls :attr:`Loop.on_error`, and goes on with the next callback.
"""

from __future__ import annotations

import heapq
import itertools
import os
import select
import signal
import time
from collections.abc import Callable
from typing import Final

from protocol.runtime import logs
from protocol.runtime.callback_errors import CallbackErrorLog
from protocol.wire import frames
from protocol.wire.frames import Socket

Callback = Callable[[], None]

_NOT_WRITE: Final = ~select.EPOLLOUT
_NOT_READ: Final = ~select.EPOLLIN


class Timer:
    """A callback at a given time; :meth:`cancel` is idempotent."""

    __slots__ = ("callback", "when")

    def __init__(self, when: float, callback: Callback) -> None:
        """Fire ``callback`` at ``when`` (monotonic seconds)."""
        self.when = when
        self.callback: Callback | None = callback

    def cancel(self) -> None:
        """Do not fire."""
        self.callback = None


class Loop:
    """Calls back when a socket or descriptor is ready, a process has ended, a timer is due or a signal has arrived."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with nothing to wait for."""
        self.now: Callable[[], float] = clock
        self._epoll = select.epoll()
        self._sockets: dict[int, tuple[Socket, Callback]] = {}
        self._used: set[int] = set()
        self._readers: dict[int, Callback] = {}
        self._writers: dict[int, Callback] = {}
        self._removed: set[int] = set()
        """Descriptors that were removed in this iteration. Their numbers may already be in use again."""
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._after_each: list[Callback] = []
        self._last: list[Callback] = []
        """Called once, after the callbacks of :attr:`_after_each`."""
        self._deaths: dict[int, int] = {}
        self._signals: dict[int, Callback] = {}
        self._wake_read, self._wake_write = -1, -1
        self._running = False
        self.errors = 0
        """Exceptions that callbacks have raised so far."""
        self.on_error: Callable[[], None] | None = None
        """Called after a callback raised, in an ``except`` block. A process that must not go on ends itself here."""
        self._error_log = CallbackErrorLog()

    def on_socket(self, source: Socket, callback: Callback | None) -> int:
        """Call back while a ZeroMQ socket has something to read; ``None`` removes the callback.

        The callback may find nothing to read and must not wait. Returns the socket's number for :meth:`used`.
        """
        fd = int(source.FD)
        if callback is None:
            if self._sockets.pop(fd, None):
                self._epoll.unregister(fd)
                self._removed.add(fd)
            return fd
        if fd not in self._sockets:
            self._epoll.register(fd, select.EPOLLIN)
        self._sockets[fd] = (source, callback)
        self._used.add(fd)
        return fd

    def watch(self, source: Socket, callback: Callback) -> Callback:
        """Call back as :meth:`on_socket` does; returns what removes the callback."""
        self.on_socket(source, callback)

        def unwatch() -> None:
            self.on_socket(source, None)

        return unwatch

    def used(self, number: int) -> None:
        """Note that something was sent through this socket, so that the loop asks it before it sleeps."""
        self._used.add(number)

    def drained(self, number: int) -> None:
        """Note that this socket was just asked and has nothing to read, so that the loop does not ask it again before it sleeps."""
        self._used.discard(number)

    def on_readable(self, fd: int, callback: Callback | None) -> None:
        """Call back while ``fd`` has something to read; ``None`` removes the callback."""
        self._set(self._readers, fd, callback)

    def on_writable(self, fd: int, callback: Callback | None) -> None:
        """Call back while ``fd`` can be written to; ``None`` removes the callback."""
        self._set(self._writers, fd, callback)

    def _set(self, table: dict[int, Callback], fd: int, callback: Callback | None) -> None:
        if callback is None and fd not in table:
            return
        before = self._mask(fd)
        if callback is None:
            table.pop(fd, None)
        else:
            table[fd] = callback
        after = self._mask(fd)
        if before == after:
            return
        if not before:
            try:
                self._epoll.register(fd, after)
            except OSError:
                # The number will be in use again, and would be mistaken for a registered one.
                table.pop(fd, None)
                raise
        elif after:
            self._epoll.modify(fd, after)
        else:
            self._epoll.unregister(fd)
            self._removed.add(fd)

    def _mask(self, fd: int) -> int:
        return (select.EPOLLIN if fd in self._readers else 0) | (select.EPOLLOUT if fd in self._writers else 0)

    def call_later(self, seconds: float, callback: Callback) -> Timer:
        """Call back once, not before ``seconds`` have passed."""
        timer = Timer(self.now() + seconds, callback)
        heapq.heappush(self._timers, (timer.when, next(self._order), timer))
        return timer

    def every(self, seconds: float, callback: Callback) -> None:
        """Call back every ``seconds`` until the loop stops; see :meth:`call_at_next`."""

        def again() -> None:
            try:
                callback()
            finally:
                self.call_at_next(seconds, again)

        self.call_at_next(seconds, again)

    def call_at_next(self, seconds: float, callback: Callback) -> None:
        """Call back once, when the clock is at a multiple of ``seconds`` that is more than half of them away.

        Everything that happens at the same intervals thus happens together: an idle process seldom wakes.
        """
        pause = seconds - self.now() % seconds
        self.call_later(pause if pause > seconds / 2 else pause + seconds, callback)

    def after_each_iteration(self, callback: Callback) -> None:
        """Call back at the end of every iteration, to flush what it collected."""
        self._after_each.append(callback)

    def call_last(self, callback: Callback) -> None:
        """Call back once, at the very end of this iteration, after everything was flushed."""
        self._last.append(callback)

    def on_death(self, pid: int, callback: Callback) -> None:
        """Call back once when the process ``pid`` has ended; at once if it already has."""
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            self.call_later(0.0, callback)
            return

        def died() -> None:
            self.forget_death(pid)
            callback()

        self._deaths[pid] = fd
        self.on_readable(fd, died)

    def forget_death(self, pid: int) -> None:
        """Do not call back for ``pid`` any more."""
        fd = self._deaths.pop(pid, -1)
        if fd >= 0:
            self.on_readable(fd, None)
            os.close(fd)

    def on_signal(self, number: signal.Signals, callback: Callback) -> None:
        """Call back (outside the signal handler) when the signal arrives."""
        if self._wake_read < 0:
            self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
            self.on_readable(self._wake_read, self._woken)
        self._signals[number] = callback
        signal.signal(number, lambda *_: None)

    def _woken(self) -> None:
        for number in dict.fromkeys(os.read(self._wake_read, 512)):
            callback = self._signals.get(number)
            if callback:
                self._call(callback)

    def stop(self) -> None:
        """End :meth:`run` after this iteration."""
        self._running = False

    def run(self) -> None:
        """Iterate until :meth:`stop`."""
        self._running = True
        while self._running:
            self.run_once(60.0)

    def run_once(self, longest: float) -> None:
        """Wait at most ``longest`` seconds for something, then call back for all that is ready."""
        timers = self._timers
        while timers and timers[0][2].callback is None:
            heapq.heappop(timers)  # cancelled: no need to wake for it
        if timers:
            longest = min(longest, max(0.0, timers[0][0] - self.now()))
        ready = self._ready()
        # epoll rounds up to milliseconds: otherwise a timer that is 0.4 ms away would be a busy loop.
        happened = self._epoll.poll(0.0 if ready else longest)
        self._removed.clear()
        for fd, flags in happened:
            if fd in self._sockets:
                if fd not in ready:
                    ready.append(fd)
            elif fd not in self._removed:
                self._call_for(fd, flags)
        for fd in ready:
            known = self._sockets.get(fd)
            if known:
                self._used.add(fd)
                self._call(known[1])
        if timers and timers[0][0] <= self.now():
            self._fire()
        self._end_iteration()

    def _end_iteration(self) -> None:
        for callback in self._after_each:
            self._call(callback)
        while self._last:
            last, self._last = self._last, []
            for callback in last:
                self._call(callback)

    def _call_for(self, fd: int, flags: int) -> None:
        if flags & _NOT_WRITE:
            callback = self._readers.get(fd)
            if callback:
                self._call(callback)
        if flags & _NOT_READ and fd not in self._removed:
            callback = self._writers.get(fd)
            if callback:
                self._call(callback)

    def _call(self, callback: Callback) -> None:
        try:
            callback()
        except Exception as problem:  # noqa: BLE001 - a programming error ends one callback, not the process
            self.errors += 1
            self._error_log.write(problem, self.errors, self.now())
            if self.on_error is not None:
                self.on_error()

    def report_error(self, problem: BaseException, log: logs.Logger, event: str, **fields: object) -> None:
        """Count an exception of our own code that was caught, and log its traceback."""
        self.errors += 1
        log.error(event, exc_info=problem, **fields)

    def _ready(self) -> list[int]:
        known, used = self._sockets, self._used
        ready = [fd for fd in used if fd in known and frames.readable(known[fd][0])]
        used.clear()
        return ready

    def _fire(self) -> None:
        now = self.now()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            callback, timer.callback = timer.callback, None
            if callback:
                self._call(callback)

    def close(self) -> None:
        """Close the loop's own file descriptors."""
        for pid in list(self._deaths):
            self.forget_death(pid)
        if self._wake_read >= 0:
            signal.set_wakeup_fd(-1)
            os.close(self._wake_read)
            os.close(self._wake_write)
            self._wake_read = self._wake_write = -1
        self._epoll.close()
