"""One agent: carries out the orders of the supervisor, reports the ends of processes, and leaves nothing behind.

Invariants:

* A process is killed at the latest when the agent has had no supervisor for the grace, or when a supervisor has refused
  the agent: it counts the processes as ended.
* While the agent kills everything, it has no connection, and starts nothing.
* The end of each process is reported, or is in the next snapshot.
* An agent that drains starts nothing, and ends with its last worker, at the latest after the grace.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from protocol.config.agent_settings import AgentSettings
from protocol.config.settings import Settings, write_settings
from protocol.messages.nodes import (
    AgentSnapshot,
    ConfigureNode,
    KillProcess,
    NodeChanged,
    NodeDrains,
    NodeLeaves,
    NodeRead,
    ProcessEnded,
    ReadNode,
    StartProcess,
)
from protocol.messages.peers import Shutdown, Welcome
from protocol.runtime import logs
from protocol.runtime.loop import Loop, Timer
from protocol.runtime.process_context import ProcessContext
from protocol.state_table import next_state
from protocol.wire.bus_address import BusAddress
from protocol.wire.endpoints import RuntimeDirectory
from supervisor.machine.host_memory import host_capacity
from supervisor.node_agent.agent_link import AgentLink
from supervisor.node_agent.agent_states import TRANSITIONS, AgentEvent, AgentState
from supervisor.node_agent.node_processes import NodeProcesses
from supervisor.node_agent.own_facts import OwnFacts

RENEWAL_S: Final = 1.0
"""How long a refused agent waits at least before its next Hello."""
LONGEST_RENEWAL_S: Final = 30.0
_RENEWALS: Final = 5
"""How often it is refused in a row before it waits longer, twice as long each time: its node may be another agent's."""
EXIT_REFUSED: Final = 3
"""The server cannot use this agent, for example because it is of another release."""
_WATCH_S: Final = 1.0
SUCCESSOR_S: Final = 3.0
"""How long an agent that drains waits for the next supervisor before it lets its workers end by itself."""
_WHY_DRAINING: Final = "its agent was told to end"
_DRAINING: Final = (AgentState.DRAINING, AgentState.DRAINING_ALONE)

log = logs.get_logger()


class NodeAgent:
    """The agent of this node."""

    def __init__(
        self,
        settings: AgentSettings,
        loop: Loop,
        runtime: RuntimeDirectory,
        context: ProcessContext,
        address: BusAddress,
    ) -> None:
        """Start nothing, and connect to nothing, before :meth:`begin`. Raises OSError if there is no way to the head."""
        self._settings, self._loop, self._runtime = settings, loop, runtime
        self._facts = OwnFacts(settings, loop, address.listening_host(), self._tell_facts)
        self._processes = NodeProcesses(loop, context, self._process_ended)
        self._link = AgentLink(
            loop, context, address, snapshot=self._snapshot, on_message=self._received, on_lost=self._lost
        )
        self._state = AgentState.ALONE
        self._grace = settings.grace
        self._grace_timer: Timer | None = None
        self._configured = False
        self.exit_code = 0
        self.reason = ""
        """Why this agent leaves."""
        self._drains = ""
        """Why it drains; empty if it does not."""
        self._refusals = 0
        """How often it was refused since the last welcome."""

    @property
    def log(self) -> Callable[[bytes], None]:
        """Sends log records to the supervisor."""
        return self._link.log

    def begin(self) -> None:
        """Say Hello to the supervisor, and watch the runtime directory."""
        self._start_grace()
        self._link.begin()
        self._loop.every(_WATCH_S, self._watch_directory)
        self._facts.begin()

    def close(self) -> None:
        """Close the sockets, and end the thread."""
        self._facts.close()
        self._link.close()

    def _transition(self, event: AgentEvent) -> None:
        self._state = next_state(TRANSITIONS, self._state, event)

    # ---- the connection ------------------------------------------------------------------------------------------

    def _snapshot(self) -> AgentSnapshot:
        processes = self._processes
        own = self._facts
        return AgentSnapshot(own.facts, processes.running(), processes.ended(), own.hardware, self._drains)

    def _received(self, message: Any, payload: bytes) -> None:
        match message:
            case Welcome():
                self._transition(AgentEvent.WELCOME)
                logs.set_level(message.log_level)
                self._refusals = 0
                if not self._drains:
                    self._stop_grace()
            case ConfigureNode():
                self._configure(message, payload)
            case StartProcess():
                self._start(message)
            case KillProcess():
                self._processes.kill(message.name)
            case ReadNode():
                self._link.send(self._read(message))
            case Shutdown():
                self._shut_down(message)
            case _:
                log.warning("unexpected message", message=type(message).__name__)

    def _lost(self) -> None:
        log.warning("the supervisor is not reachable", grace=self._grace, processes=len(self._processes))
        self._transition(AgentEvent.CONNECTION_LOST)
        self._start_grace()
        if self._drains:
            self._let_workers_end_later()

    def _start_grace(self) -> None:
        if self._grace_timer is None:
            self._grace_timer = self._loop.call_later(self._grace, self._grace_over)

    def _stop_grace(self) -> None:
        if self._grace_timer is not None:
            self._grace_timer.cancel()
            self._grace_timer = None

    def _grace_over(self) -> None:
        if self._drains:
            self.leave(f"{self._drains}, and after {self._grace:g} s some requests still ran")
        else:
            self.leave(f"no supervisor has been there for {self._grace:g} s", exit_code=1)

    # ---- orders --------------------------------------------------------------------------------------------------

    def _configure(self, message: ConfigureNode, payload: bytes) -> None:
        """Write the settings for the processes of this node."""
        settings = self._facts.with_own_folders(msgspec.json.decode(payload, type=Settings))
        self._grace = message.grace
        write_settings(settings, self._runtime.path)
        self._configured = True
        self._facts.configure(settings)

    def _tell_facts(self) -> None:
        self._link.send(NodeChanged(self._facts.facts, self._facts.hardware))

    def _start(self, order: StartProcess) -> None:
        ready = self._configured and not self._drains
        self._processes.start(order, "" if ready else self._drains or "the agent has no settings yet")

    def _process_ended(self, end: ProcessEnded) -> None:
        self._link.send(end)
        self._leave_if_drained()

    def _read(self, order: ReadNode) -> NodeRead:
        capacity = host_capacity(Path(self._settings.machine_dir))
        return NodeRead(order.number, [capacity], self._processes.figures(order.workers))

    # ---- ends ----------------------------------------------------------------------------------------------------

    def _shut_down(self, order: Shutdown) -> None:
        if order.draining or self._drains:
            self.leave(order.reason, EXIT_REFUSED if order.refused else 0)
            return
        self._refusals += 1
        if not self._refusals & (self._refusals - 1):
            why = {"reason": order.reason, "times": self._refusals}
            log.warning("this agent was refused: it ends its processes, and begins anew", **why)
        self._transition(AgentEvent.REFUSED)
        self._start_grace()
        self._link.end()
        longer = 2.0 ** max(0, self._refusals - _RENEWALS)
        self._processes.kill_all(self._renew, least=min(LONGEST_RENEWAL_S, RENEWAL_S * longer))

    def _renew(self) -> None:
        if self._state is AgentState.RENEWING:
            self._transition(AgentEvent.ALL_ENDED)
            self._processes.forget_ended()
            self._link.begin()

    def drain(self) -> None:
        """Let the streams of this node end, at the latest after the grace, and then end; at once if this is called again."""
        if self._drains or AgentEvent.DRAIN not in TRANSITIONS[self._state]:
            self.leave(_WHY_DRAINING)
        else:
            self.begin_drain()

    def begin_drain(self) -> None:
        """Do the same, but change nothing if it drains already."""
        if self._drains:
            return
        if AgentEvent.DRAIN not in TRANSITIONS[self._state]:
            self.leave(_WHY_DRAINING)
            return
        log.info("node drains", reason=_WHY_DRAINING, grace=self._grace, processes=len(self._processes))
        self._drains = _WHY_DRAINING
        self._transition(AgentEvent.DRAIN)
        self._start_grace()
        self._link.send(NodeDrains(_WHY_DRAINING))
        if self._state is AgentState.DRAINING_ALONE:
            self._let_workers_end_later()
        self._leave_if_drained()

    def _leave_if_drained(self) -> None:
        if self._state in _DRAINING and not self._processes.workers():
            self.leave(self._drains)

    def _let_workers_end_later(self) -> None:
        """Let workers end by themselves, unless a supervisor comes, which knows what else their models need."""
        self._loop.call_later(SUCCESSOR_S, self._let_workers_end)

    def _let_workers_end(self) -> None:
        if self._state is AgentState.DRAINING_ALONE:
            self._processes.let_workers_end()

    def leave(self, why: str, exit_code: int = 0) -> None:
        """Tell the supervisor, kill everything, and end this process."""
        if self._state is AgentState.LEAVING:
            return
        log.info("node agent ends", reason=why, processes=len(self._processes))
        self.exit_code, self.reason = exit_code, why
        self._link.send(NodeLeaves(why))
        self._transition(AgentEvent.END)
        self._stop_grace()
        self._link.end()
        self._processes.kill_all(self._loop.stop)

    def _watch_directory(self) -> None:
        """Leave if something else has removed the directory: no process could be started any more."""
        if not self._runtime.is_ours():
            path = os.fspath(self._runtime.path)
            self.leave(f"its runtime directory {path} was changed by something else", exit_code=1)
