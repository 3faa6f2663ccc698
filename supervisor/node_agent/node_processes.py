"""The processes of a node: what runs there, what has ended lately, and the end of all of them."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from protocol.messages.nodes import MAX_ENDED, NodeProcess, ProcessEnded, StartProcess, WorkerFigures
from protocol.models.memory import HOST
from protocol.runtime import logs, process_name
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import FINGERPRINT_VARIABLE, ProcessContext
from supervisor.processes.local_placement import LocalPlacement

KILL_TIMEOUT_S: Final = 5.0
"""How long killed processes are waited for. One that waits for a dead disk may never end."""
_LOOK_S: Final = 0.02
_MODULE: Final = re.compile(r"workers(\.jobs(\.[a-z_]+)+)?")

log = logs.get_logger()


class NodeProcesses:
    """The children of an agent."""

    def __init__(self, loop: Loop, context: ProcessContext, on_ended: Callable[[ProcessEnded], None]) -> None:
        """Start nothing yet. ``on_ended`` is called with each process that has ended."""
        self._loop, self._on_ended = loop, on_ended
        self._placement = LocalPlacement(loop, context)
        self._orders: dict[str, StartProcess] = {}
        """Process that runs → its order."""
        self._ended: deque[ProcessEnded] = deque(maxlen=MAX_ENDED)

    def __len__(self) -> int:
        """Return how many run or start."""
        return len(self._orders)

    def workers(self) -> list[str]:
        """Return the workers that run or start."""
        return [name for name, order in self._orders.items() if order.role == "worker"]

    def running(self) -> list[NodeProcess]:
        """Return those that run or start."""
        return [
            NodeProcess(
                name,
                order.role,
                pid := self._placement.pid(name),
                order.variables.get(FINGERPRINT_VARIABLE, ""),
                welcomed=process_name.is_welcomed(pid, order.role),
            )
            for name, order in self._orders.items()
        ]

    def ended(self) -> list[ProcessEnded]:
        """Return the latest ends."""
        return list(self._ended)

    def forget_ended(self) -> None:
        """Forget the ends: the agent begins anew."""
        self._ended.clear()

    def start(self, order: StartProcess, why_not: str) -> None:
        """Start a process, unless there is a reason why not: then it has ended.

        An order may come twice, because the first one may have been lost.
        """
        name = order.name
        if name in self._orders or any(ended.name == name for ended in self._ended):
            return
        self._orders[name] = order
        ended = partial(self._process_ended, name)
        if not (_MODULE.fullmatch(order.module) and order.role in ("worker", "job")):
            why_not = f"{order.role} {order.module}"
        if why_not:
            self._loop.call_later(0.0, partial(ended, f"it could not be started: {why_not}"))
            return
        self._placement.start(name, order.role, order.module, ended, order.variables)

    def _process_ended(self, name: str, why: str) -> None:
        self._orders.pop(name, None)
        end = ProcessEnded(name, why)
        self._ended.append(end)
        self._on_ended(end)

    def kill(self, name: str) -> None:
        """Kill a process. A name that does not run is ignored."""
        self._placement.kill(name)

    def let_workers_end(self) -> None:
        """Tell the workers to end when their requests have ended."""
        for name in self.workers():
            self._placement.terminate(name)

    def figures(self, names: Iterable[str]) -> dict[str, WorkerFigures]:
        """Return what those of these processes use that run."""
        return {name: self._figures(name) for name in names if name in self._orders}

    def _figures(self, name: str) -> WorkerFigures:
        pid, resident = self._placement.pid(name), self._placement.resident_bytes
        pids = [pid, *self._placement.started_by(name)]
        sizes = {each: resident(name, each) for each in pids}
        return WorkerFigures(pid, sizes, {HOST: sum(sizes.values()) - sizes[pid]})

    def kill_all(self, then: Callable[[], None], least: float = 0.0) -> None:
        """Kill all processes; call ``then`` when they have ended, and ``least`` seconds have passed."""
        self._placement.kill_all()
        began = self._loop.now()

        def look() -> None:
            passed = self._loop.now() - began
            if passed > KILL_TIMEOUT_S:
                for name in list(self._orders):
                    log.error("process cannot be killed", name=name, process_pid=self._placement.pid(name))
                    self._orders.pop(name)
                    self._placement.give_up(name)
            if len(self._placement) or passed < least:
                self._loop.call_later(_LOOK_S, look)
            else:
                then()

        look()
