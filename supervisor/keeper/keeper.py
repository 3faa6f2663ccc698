"""The keeper's loop: connects signals, fork servers, the supervisor and the service manager. It decides little."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import MutableMapping

from supervisor.keeper import channel, reaper
from supervisor.keeper.fork_server import ForkServer
from supervisor.keeper.restart_policy import EXIT_FAILED, Exit, RestartPolicy, SupervisorEnd
from supervisor.keeper.service_manager import ServiceManager
from supervisor.keeper.signals import Signals
from supervisor.keeper.supervisor_process import SupervisorProcess

TICK_S = 1.0
KILL_TIMEOUT_S = 5.0
"""At the end: how long killed processes may take to be gone."""
FORK_SERVER_PAUSE_S = 5.0
"""Least time between two starts of fork servers while a supervisor runs."""


class Keeper:
    """One server, from its start to its exit code."""

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        """Catch signals and become the parent of orphans; start nothing yet."""
        self._manager = ServiceManager(environment)
        self._signals = Signals()
        reaper.become_subreaper()
        self._boot = os.urandom(6).hex()
        self._policy = RestartPolicy()
        self._held: dict[str, int] = {}
        """Name → descriptor that the next supervisor gets."""
        self._fork_server: ForkServer | None = None
        self._fork_server_due = 0.0
        self._supervisor: SupervisorProcess | None = None
        self._supervisor_due = 0.0
        """When the next supervisor is to be started, while there is none."""
        self._started = 0
        """Supervisors so far."""
        self._why = ""
        """Why the last supervisor ended; or what happened to the fork server."""
        self._serving = ""
        """The text of the first ``ready``; empty before it."""
        self._closing = 0
        """How often the server was told to end."""
        self._reload_wanted = False
        self._exit_code: int | None = None

    def run(self) -> int:
        """Keep a supervisor running until the server ends; return the exit code."""
        while self._exit_code is None:
            now = time.monotonic()
            self._start_what_is_due(now)
            self._wait(now)
            self._read(time.monotonic())
            self._look(time.monotonic())
        if self._fork_server is not None:
            self._fork_server.dismiss()
        reaper.kill_all(KILL_TIMEOUT_S)
        return self._exit_code

    # What is started

    def _start_what_is_due(self, now: float) -> None:
        if self._fork_server is None and now >= self._fork_server_due and not self._closing:
            self._fork_server_due = now + FORK_SERVER_PAUSE_S
            try:
                self._fork_server = ForkServer(self._boot, now)
            except OSError as problem:  # too many processes, no memory
                print_line(f"the supervisor cannot be started: {problem.strerror}")
        fork_server = self._fork_server
        if (
            self._supervisor is None
            and fork_server is not None
            and fork_server.prepared
            and now >= self._supervisor_due
        ):
            self._start_supervisor(fork_server, now)

    def _start_supervisor(self, fork_server: ForkServer, now: float) -> None:
        supervisor = SupervisorProcess(now, self._held, f"{self._started}\n{self._why}")
        self._supervisor, self._why = supervisor, ""
        self._started += 1
        supervisor.give(fork_server.start(supervisor.end_of_channel))
        if self._reload_wanted:
            supervisor.send(channel.RELOAD)

    # What happens

    def _wait(self, now: float) -> None:
        poll = select.poll()
        poll.register(self._signals, select.POLLIN)
        for each in (self._fork_server, self._supervisor):
            if each is not None and not each.closed:
                poll.register(each, select.POLLIN)
        due = [now + TICK_S]
        if self._supervisor is None and self._fork_server is not None and self._fork_server.prepared:
            due.append(self._supervisor_due)  # before that, the fork server's word ends the wait
        if self._fork_server is None:
            due.append(self._fork_server_due)
        poll.poll(max(0.0, min(due) - now) * 1000)

    def _read(self, now: float) -> None:
        for number in self._signals.arrived():
            self._signalled(number)
        if self._fork_server is not None:
            self._fork_server.read()
        if self._supervisor is not None:
            while received := self._supervisor.receive(now):
                self._told(self._supervisor, *received)
        # After what they have said: it explains their ends.
        for pid, status in reaper.reap():
            self._reaped(pid, status, now)

    def _signalled(self, number: int) -> None:
        if number == signal.SIGHUP and not self._signals.terminal_was_closed():
            self._reload()
        elif number == signal.SIGUSR2:
            self._begin_upgrade()
        elif number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self._end()

    def _end(self) -> None:
        self._closing += 1
        if self._closing == 1:
            self._manager.stopping()
        if self._supervisor is not None:
            self._supervisor.send(channel.END)
        else:
            self._exit_code = EXIT_FAILED

    def _reload(self) -> None:
        self._reload_wanted = True
        self._manager.reloading()
        if self._supervisor is not None:
            self._supervisor.send(channel.RELOAD)

    def _told(self, supervisor: SupervisorProcess, word: str, arguments: str, descriptor: int) -> None:
        if word == channel.HOLD and descriptor >= 0:
            if arguments in self._held:
                os.close(self._held[arguments])
            self._held[arguments] = descriptor
        elif word == channel.READY:
            supervisor.ready = True
            self._serving = arguments
            self._manager.ready(arguments)
        elif word == channel.RELOADED:
            self._reload_wanted = False
            self._manager.ready(self._serving)
        elif word == channel.UPGRADE:
            self._begin_upgrade()

    def _reaped(self, pid: int, status: int, now: float) -> None:
        supervisor = self._supervisor
        if supervisor is not None and pid == supervisor.pid:
            supervisor.status, supervisor.reaped = status, True
        elif self._fork_server is not None and pid == self._fork_server.pid:
            self._fork_server_ended(self._fork_server, status, now)
        elif supervisor is not None:
            supervisor.send(channel.EXITED, f"{pid} {status}")

    def _fork_server_ended(self, fork_server: ForkServer, status: int, now: float) -> None:
        """Let its supervisor live; the next fork server is started before it is needed."""
        fork_server.dismiss()
        self._fork_server = None
        if self._supervisor is None:
            self._why = "it could not be started" if fork_server.prepared else f"its modules: exit {status}"
            self._follow(SupervisorEnd(status, 0.0, first=not self._started), now)
            self._fork_server_due = self._supervisor_due

    # What follows

    def _look(self, now: float) -> None:
        if self._fork_server is not None and self._fork_server.is_stuck(now):
            self._fork_server.kill()
        supervisor = self._supervisor
        if supervisor is None:
            return
        supervisor.heartbeat.look(now)
        if supervisor.heartbeat.fresh:
            self._manager.feed_watchdog(now)
        elif supervisor.heartbeat.lost and not supervisor.last_words:
            self._replace_silent(supervisor)
        if supervisor.has_ended:
            self._supervisor_ended(supervisor, now)

    def _replace_silent(self, supervisor: SupervisorProcess) -> None:
        supervisor.last_words = "it was killed because it gave no sign of life"
        if supervisor.pid:
            supervisor.kill()
        elif self._fork_server is not None:
            self._fork_server.kill()  # it has not forked what it was told to

    def _supervisor_ended(self, supervisor: SupervisorProcess, now: float) -> None:
        self._supervisor = None
        self._why = supervisor.describe_end()
        self._follow(supervisor.ended(now), now)

    def _follow(self, end: SupervisorEnd, now: float) -> None:
        decision = self._policy.after(end, closing=self._closing > 0)
        if isinstance(decision, Exit):
            self._exit_code = decision.code
            if decision.gave_up:
                print_line(f"the supervisor died too often in its first second; the last time: {self._why}")
            return
        self._supervisor_due = now + decision.pause
        self._manager.status(f"the supervisor is started again ({self._why})")

    # Upgrade

    def _begin_upgrade(self) -> None:
        pass


def print_line(line: str) -> None:
    """Print one line on stderr: there is no supervisor to log it."""
    os.write(2, f"lemonbus: {line}\n".encode())
