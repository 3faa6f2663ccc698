"""The keeper's loop: connects signals, fork servers, the supervisor and the service manager.

It decides little: `process_states` and `upgrade_steps` have the states of all these, `restart_policy` what follows from them.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import MutableMapping, Sequence

from protocol.state_table import next_state
from supervisor.keeper import channel, process_tree, reaper
from supervisor.keeper.error_output import print_line
from supervisor.keeper.fork_server_process import ForkServerProcess
from supervisor.keeper.fork_server_roles import ForkServers, Role
from supervisor.keeper.kept_state import KeptState
from supervisor.keeper.process_states import SERVER, TO_END, ServerLifecycleEvent, ServerState, SupervisorState
from supervisor.keeper.restart_policy import Exit, RestartPolicy, SupervisorEnd, reason_to_kill
from supervisor.keeper.service_manager import ServiceManager
from supervisor.keeper.signals import Signals
from supervisor.keeper.supervisor_process import SupervisorProcess
from supervisor.keeper.upgrade_steps import UNCONFIRMED, UpgradeEvent, UpgradeState

TICK_S = 1.0
KILL_TIMEOUT_S = 5.0
"""Time limit for a supervisor that was told to end at once, and for killed processes to be gone."""
HAND_OVER_TIMEOUT_S = 10.0
"""Time limit for a supervisor to write its state files and end for its successor."""
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
        self._kept = KeptState()
        self._state = ServerState.STARTING
        self._supervisor: SupervisorProcess | None = None
        self._supervisor_due = 0.0
        """When to start the next supervisor, while there is none."""
        self._serving = ""
        """The text of the last ``ready``."""
        self._exit_code = 0

    def run(self) -> int:
        """Keep a supervisor running until the server ends; return the exit code."""
        while self._state is not ServerState.ENDED:
            try:
                self._turn()
            except Exception:  # noqa: BLE001 - nothing starts a keeper again: one step has failed, and is tried again
                sys.excepthook(*sys.exc_info())
                time.sleep(TICK_S)
        for fork_server in self._fork_servers:
            fork_server.close()
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
        if present is None or not present.can_fork:
            return
        if urgent:
            self._start_supervisor(present, now)
        elif self._supervisor is not None and present.is_to_serve(now):
            with present.serve(now) as end:
                self._supervisor.send(channel.HELD, channel.FORK_SERVER, end.fileno())

    def _start_supervisor(self, fork_server: ForkServerProcess, now: float) -> None:
        with fork_server.serve(now) as end:
            supervisor = self._supervisor = self._kept.new_supervisor(end.fileno(), now)
        self._transition(ServerLifecycleEvent.SUPERVISOR_STARTED)
        supervisor.give(end_given=fork_server.start(supervisor.end_of_channel), now=now)
        if self._state in TO_END:
            supervisor.send(channel.END)
        if self._state is ServerState.ENDING:
            self._end_at_once(supervisor, now)
        self._kept.send_kept(supervisor)

    # What happens

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self._signals, select.POLLIN)
        for each in (*self._fork_servers, *([self._supervisor] if self._supervisor is not None else [])):
            if each.is_open:
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
        self._fork_servers.read()
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
        elif number == signal.SIGUSR1:
            print_line("SIGUSR1 changes nothing: SIGHUP reloads the configuration, and SIGUSR2 upgrades")
        elif number == signal.SIGUSR2:
            self._upgrade(now)
        elif number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self._end(now)

    def _word_received(
        self, supervisor: SupervisorProcess, word: str, arguments: str, descriptor: int, now: float
    ) -> None:
        if word == channel.HOLD and descriptor >= 0:
            self._kept.hold(arguments, descriptor)
        elif word == channel.READY and supervisor.state is SupervisorState.SERVING:
            self._serving = arguments
            self._fork_servers.supervisor_serves()
            self._manager.ready(arguments)
        elif word == channel.RELOADED and arguments.isdecimal():
            if self._kept.reloaded(int(arguments)):
                self._manager.ready(self._serving)
        elif word == channel.UPGRADE:
            self._upgrade(now)

    def _reaped(self, pid: int, status: int, now: float) -> None:
        supervisor = self._supervisor
        if supervisor is None or supervisor.pid not in (0, pid):
            self._other_reaped(pid, status, now)
            return
        try:
            self._read_supervisor(now)  # its last words, which may be its first: they say its pid
        finally:
            if pid == supervisor.pid:
                supervisor.reaped(status, now)
            else:
                self._other_reaped(pid, status, now)

    def _other_reaped(self, pid: int, status: int, now: float) -> None:
        supervisor = self._supervisor
        role, how = self._fork_servers.reaped(pid), process_tree.describe_status(status)
        if role is None:
            if supervisor is not None:
                supervisor.send(channel.EXITED, f"{pid} {status}")
        elif role is Role.NEXT:
            self._upgrade_failed(
                f"the new version could not be started: {how}; what it printed is in the server's stderr"
            )
        elif role is Role.PRESENT and supervisor is None:
            self._could_not_fork(f"the process that forks it has ended: {how}", status, now)

    # Orders

    def _end(self, now: float) -> None:
        self._transition(ServerLifecycleEvent.END_ORDERED)
        if self._state is not ServerState.ENDING:
            self._manager.stopping()
        if self._supervisor is None:
            return
        if self._state is ServerState.ENDING:
            self._end_at_once(self._supervisor, now)
        else:
            self._supervisor.send(channel.END)

    @staticmethod
    def _end_at_once(supervisor: SupervisorProcess, now: float) -> None:
        supervisor.send(channel.END)
        supervisor.deadline = min(supervisor.deadline, now + KILL_TIMEOUT_S)

    def _reload(self) -> None:
        self._manager.reloading()
        self._kept.reload_ordered(self._supervisor)

    def _upgrade(self, now: float) -> None:
        if self._state in TO_END:
            return
        if self._fork_servers.upgrade in UNCONFIRMED:
            self._kept.send(
                self._supervisor, channel.UPGRADE_REFUSED, "the last upgrade is not complete yet; ask again in a moment"
            )
        elif self._fork_servers.upgrade is UpgradeState.NONE:
            try:
                self._fork_servers.begin_upgrade(now)
            except OSError as problem:
                self._upgrade_failed(f"no process can be started: {problem.strerror}")
                return
            self._manager.reloading()
            self._kept.send(self._supervisor, channel.UPGRADE_BEGUN)

    def _upgrade_failed(self, why: str) -> None:
        self._manager.ready(self._serving)
        self._kept.send(self._supervisor, channel.UPGRADE_FAILED, why)

    # What follows

    def _look(self, now: float) -> None:
        self._fork_servers.kill_stuck(now)
        supervisor = self._supervisor
        if supervisor is None:
            return
        supervisor.heartbeat.look(now)
        if supervisor.heartbeat.is_fresh(supervisor.state):
            self._manager.feed_watchdog(now)
        if self._fork_servers.upgrade is UpgradeState.PREPARED and self._state not in TO_END:
            supervisor.send(channel.HAND_OVER)
            supervisor.deadline = min(supervisor.deadline, now + HAND_OVER_TIMEOUT_S)
            self._fork_servers.hand_over_ordered()
        upgrade, overdue = self._fork_servers.upgrade, now >= supervisor.deadline
        why = reason_to_kill(supervisor.state, supervisor.heartbeat, upgrade, self._state, overdue=overdue)
        if why and supervisor.kill(why) and self._fork_servers.present is not None:
            self._fork_servers.present.kill()  # it has not forked what it was told to
        if supervisor.end is not None:
            self._supervisor_ended(supervisor, supervisor.end, now)

    def _supervisor_ended(self, supervisor: SupervisorProcess, end: SupervisorEnd, now: float) -> None:
        self._supervisor = None
        handed_over = end.state is SupervisorState.HANDED_OVER
        self._kept.why = "" if handed_over else supervisor.describe_end()
        event = None if end.ends_server(self._state) else self._fork_servers.supervisor_ended(end)
        if event is UpgradeEvent.FAIL:
            self._upgrade_failed(f"no supervisor of the new version became ready: {self._kept.why}")
        self._follow(end, now, planned=handed_over or event is not None)

    def _could_not_fork(self, why: str, status: int | None, now: float) -> None:
        self._kept.why = why
        self._follow(SupervisorEnd(SupervisorState.ORDERED, status, 0.0, first=not self._kept.supervisors), now)

    def _follow(self, end: SupervisorEnd, now: float, *, planned: bool = False) -> None:
        decision = self._policy.after(end, self._state, planned=planned)
        if isinstance(decision, Exit):
            self._transition(ServerLifecycleEvent.OVER)
            self._exit_code = decision.code
            if decision.gave_up:
                print_line(f"the supervisor died too often in its first second; the last time: {self._kept.why}")
            return
        self._supervisor_due = now + decision.pause
        if not planned:
            self._manager.status(f"the supervisor is started again ({self._kept.why})")

    def _transition(self, event: ServerLifecycleEvent) -> None:
        self._state = next_state(SERVER, self._state, event)
