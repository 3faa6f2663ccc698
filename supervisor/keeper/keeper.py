"""The keeper's loop: connects signals, fork servers, the supervisor and the service manager. It decides little."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import MutableMapping, Sequence

from supervisor.keeper import channel, process_tree, reaper
from supervisor.keeper.error_output import print_line
from supervisor.keeper.fork_server import ForkServer
from supervisor.keeper.fork_servers import ForkServers
from supervisor.keeper.restart_policy import Exit, RestartPolicy, SupervisorEnd
from supervisor.keeper.service_manager import ServiceManager
from supervisor.keeper.signals import Signals
from supervisor.keeper.supervisor_process import SupervisorProcess

TICK_S = 1.0
KILL_TIMEOUT_S = 5.0
"""Time limit for a supervisor that was told to end at once, and for killed processes to be gone."""
HAND_OVER_TIMEOUT_S = 10.0
"""Time limit for a supervisor to write its state files and end for its successor."""
UPGRADE_TIMEOUT_S = 60.0
"""Time limit until the gateways of a new version's supervisor serve. The old ones accept no connections meanwhile."""
FORK_SERVER_COMMAND = (sys.executable, "-m", "supervisor", "lemonbus-server")
"""The last word is ignored. The command line of each forked process is written over this one, and must fit."""


class Keeper:
    """One server, from its start to its exit code."""

    def __init__(self, environment: MutableMapping[str, str], command: Sequence[str] = FORK_SERVER_COMMAND) -> None:
        """Catch signals and become the parent of orphans; start nothing yet. ``command``: that of the fork server."""
        self._manager = ServiceManager(environment)
        self._signals = Signals()
        reaper.become_subreaper()
        self._fork_servers = ForkServers(os.urandom(6).hex(), command)
        self._policy = RestartPolicy()
        self._held: dict[str, int] = {}
        """Name → descriptor that the next supervisor gets."""
        self._supervisor: SupervisorProcess | None = None
        self._supervisor_due = 0.0
        """When to start the next supervisor, while there is none."""
        self._started = 0
        """How many supervisors were started."""
        self._why = ""
        """Why the last supervisor ended."""
        self._upgrade_problem = ""
        """Why the last upgrade failed, until a supervisor was told."""
        self._serving = ""
        """The text of the last ``ready``."""
        self._closing = 0
        """How often the server was told to end."""
        self._kill_due = 0.0
        """When to kill the supervisor if it was told to end and has not; 0: it was not told."""
        self._reloads = 0
        """Orders to reload that no supervisor has carried out."""
        self._exit_code: int | None = None

    def run(self) -> int:
        """Keep a supervisor running until the server ends; return the exit code."""
        while self._exit_code is None:
            try:
                self._turn()
            except Exception:  # noqa: BLE001 - nothing starts a keeper again: one step has failed, and is tried again
                sys.excepthook(*sys.exc_info())
                time.sleep(TICK_S)
        for fork_server in self._fork_servers:
            fork_server.dismiss()
        reaper.kill_all(KILL_TIMEOUT_S)
        self._manager.status("ended")  # the last text stays in the status of a unit that is not active
        return self._exit_code

    def _turn(self) -> None:
        self._start_missing(time.monotonic())
        self._wait()
        self._read(time.monotonic())
        self._look(time.monotonic())

    # Starting

    def _start_missing(self, now: float) -> None:
        urgent = self._supervisor is None and now >= self._supervisor_due
        try:
            self._fork_servers.start_missing(now, urgent=urgent)
        except OSError as problem:  # too many processes, no memory
            if urgent:
                self._could_not_fork(f"no process can be started: {problem.strerror}", None, now)
            return
        present = self._fork_servers.present
        if present is None or not present.prepared:
            return
        if urgent:
            self._start_supervisor(present, now)
        elif self._supervisor is not None and present.is_to_serve(now):
            with present.serve(now) as end:
                self._supervisor.send(channel.HELD, channel.FORK_SERVER, end.fileno())

    def _start_supervisor(self, fork_server: ForkServer, now: float) -> None:
        with fork_server.serve(now) as end:
            held = {**self._held, channel.FORK_SERVER: end.fileno()}
            supervisor = SupervisorProcess(now, held, f"{self._started}\n{self._why}")
        self._supervisor, self._why = supervisor, ""
        self._started += 1
        supervisor.give(fork_server.start(supervisor.end_of_channel))
        if self._upgrade_problem:
            supervisor.send(channel.UPGRADE_FAILED, self._upgrade_problem)
            self._upgrade_problem = ""
        for _ in range(self._closing):
            supervisor.send(channel.END)
        if self._reloads:
            self._reloads = 1  # one reading is enough for everything that came before it
            supervisor.send(channel.RELOAD)

    # What happens

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self._signals, select.POLLIN)
        for each in (*self._fork_servers, *([self._supervisor] if self._supervisor is not None else [])):
            if not each.closed:
                poll.register(each, select.POLLIN)
        wait = TICK_S
        if self._supervisor is None:
            left = self._supervisor_due - time.monotonic()
            if left > 0.0:
                wait = min(wait, left)
        poll.poll(wait * 1000)

    def _read(self, now: float) -> None:
        for number in self._signals.arrived():
            self._signalled(number, now)
        for fork_server in self._fork_servers:
            fork_server.read()
        # Before the ends of processes, because what they said explains them.
        self._read_supervisor(now)
        for pid, status in reaper.reap():
            self._reaped(pid, status, now)

    def _read_supervisor(self, now: float) -> None:
        supervisor = self._supervisor
        if supervisor is not None:
            while received := supervisor.receive(now):
                self._word_received(supervisor, *received, now)

    def _signalled(self, number: int, now: float) -> None:
        if number == signal.SIGHUP and not self._signals.terminal_was_closed():
            self._reload()
        elif number == signal.SIGUSR2:
            self._upgrade(now)
        elif number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self._end(now)

    def _word_received(
        self, supervisor: SupervisorProcess, word: str, arguments: str, descriptor: int, now: float
    ) -> None:
        if word == channel.HOLD and descriptor >= 0:
            if arguments in self._held:
                os.close(self._held[arguments])
            self._held[arguments] = descriptor
        elif word == channel.READY:
            supervisor.ready = True
            self._serving = arguments
            self._fork_servers.confirm()
            self._manager.ready(arguments)
        elif word == channel.RELOADED:
            self._reloads = max(0, self._reloads - int(arguments))
            if not self._reloads:
                self._manager.ready(self._serving)
        elif word == channel.UPGRADE:
            self._upgrade(now)

    def _reaped(self, pid: int, status: int, now: float) -> None:
        supervisor = self._supervisor
        if supervisor is not None and pid == supervisor.pid:
            supervisor.reaped(status)
            self._read_supervisor(now)  # its very last words
            return
        is_next = self._fork_servers.next is not None and pid == self._fork_servers.next.pid
        fork_server = self._fork_servers.reaped(pid)
        if fork_server is None:
            if supervisor is not None:
                supervisor.send(channel.EXITED, f"{pid} {status}")
        elif is_next:
            how = process_tree.describe_status(status)
            self._upgrade_failed(
                f"the new version could not be started: {how}; what it printed is in the server's stderr"
            )
        elif supervisor is None and self._fork_servers.present is None:
            self._could_not_fork(
                f"the process that forks it has ended: {process_tree.describe_status(status)}", status, now
            )

    # Orders

    def _end(self, now: float) -> None:
        self._closing += 1
        if self._closing == 1:
            self._manager.stopping()
        else:
            self._kill_due = self._kill_due or now + KILL_TIMEOUT_S
        if self._supervisor is not None:
            self._supervisor.send(channel.END)
        elif not self._started:
            self._exit_code = 0

    def _reload(self) -> None:
        self._reloads += 1
        self._manager.reloading()
        if self._supervisor is not None:
            self._supervisor.send(channel.RELOAD)

    def _upgrade(self, now: float) -> None:
        if self._closing:
            return
        try:
            if self._fork_servers.begin_upgrade(now):
                self._manager.reloading()
                self._tell(channel.UPGRADE_BEGUN)
            elif self._fork_servers.former is not None:
                self._tell(channel.UPGRADE_REFUSED, "the last upgrade is not complete yet; ask again in a moment")
        except OSError as problem:
            self._upgrade_failed(f"no process can be started: {problem.strerror}")

    def _tell(self, word: str, arguments: str = "") -> None:
        if self._supervisor is not None:
            self._supervisor.send(word, arguments)

    def _upgrade_failed(self, why: str) -> None:
        self._manager.ready(self._serving)
        if self._supervisor is not None:
            self._supervisor.send(channel.UPGRADE_FAILED, why)
        else:
            self._upgrade_problem = why

    # What follows

    def _look(self, now: float) -> None:
        self._fork_servers.kill_stuck(now)
        supervisor = self._supervisor
        if supervisor is None:
            return
        supervisor.heartbeat.look(now)
        if supervisor.heartbeat.fresh:
            self._manager.feed_watchdog(now)
        elif supervisor.heartbeat.lost:
            self._kill(supervisor, "it was killed because it gave no sign of life")
        following = self._fork_servers.next
        if following is not None and following.prepared and not self._kill_due and not self._closing:
            supervisor.send(channel.HAND_OVER)
            self._kill_due = now + HAND_OVER_TIMEOUT_S
        upgrading = self._fork_servers.former is not None and not self._closing
        if upgrading and supervisor.heartbeat.watched >= UPGRADE_TIMEOUT_S:
            self._kill(supervisor, f"it was killed because its gateways did not serve within {UPGRADE_TIMEOUT_S:.0f} s")
        if self._kill_due and now >= self._kill_due:
            self._kill(supervisor, "it was killed because it did not end when it was told to")
        if supervisor.has_ended:
            self._supervisor_ended(supervisor, now)

    def _kill(self, supervisor: SupervisorProcess, why: str) -> None:
        if not supervisor.killed:
            supervisor.killed = why
            supervisor.kill()
            if not supervisor.pid and self._fork_servers.present is not None:
                self._fork_servers.present.kill()  # it has not forked what it was told to

    def _supervisor_ended(self, supervisor: SupervisorProcess, now: float) -> None:
        self._supervisor = None
        self._kill_due = 0.0
        end = supervisor.ended(now)
        self._why = "" if end.handed_over else supervisor.describe_end()
        if not end.ends_server(closing=self._closing > 0):
            if self._fork_servers.replace():
                end.handed_over = True  # its successor is prepared, however it ended
            elif not end.ready and self._fork_servers.former is not None:
                self._new_version_ended(supervisor, end)
        self._follow(end, now)

    def _new_version_ended(self, supervisor: SupervisorProcess, end: SupervisorEnd) -> None:
        """If something else has killed it, try again; otherwise return to the previous version, whose processes are still there."""
        end.handed_over = True
        by_signal = end.status is not None and end.status < 0 and not supervisor.killed
        if not (by_signal and self._fork_servers.try_again()):
            self._fork_servers.return_to_former()
            self._upgrade_failed(f"no supervisor of the new version became ready: {self._why}")

    def _could_not_fork(self, why: str, status: int | None, now: float) -> None:
        self._why = why
        self._follow(SupervisorEnd(status, 0.0, first=not self._started), now)

    def _follow(self, end: SupervisorEnd, now: float) -> None:
        decision = self._policy.after(end, orders_to_end=self._closing)
        if isinstance(decision, Exit):
            self._exit_code = decision.code
            if decision.gave_up:
                print_line(f"the supervisor died too often in its first second; the last time: {self._why}")
            return
        self._supervisor_due = now + decision.pause
        if not end.handed_over:
            self._manager.status(f"the supervisor is started again ({self._why})")
