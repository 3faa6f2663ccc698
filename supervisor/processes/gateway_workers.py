"""The gateways, which gunicorn's masters fork: watched and killed by name.

A gateway chooses its id on the bus itself. Before its Hello it therefore has a name that is made of its pid.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

from protocol.messages.peers import Hello
from protocol.runtime.loop import Loop
from supervisor.keeper import process_tree

OnEnded = Callable[[str], None]


class GatewayWorkers:
    """Those that were found, or have said Hello, and have not ended."""

    def __init__(self, loop: Loop) -> None:
        """None is known yet."""
        self._loop = loop
        self._names: dict[int, str] = {}
        """By pid."""

    def find(self, master: int, on_ended: OnEnded) -> list[str]:
        """Watch the gateways that a master has forked, and return their names. ``on_ended`` gets the last name of each."""
        return [self._watch(pid, f"gateway {pid}", on_ended) for pid in process_tree.children(master)]

    def joined(self, hello: Hello, on_ended: OnEnded) -> str:
        """Call a gateway by its id from now on, and return its former name. Watch it, unless that is done already."""
        former = self._names.get(hello.pid)
        self._names[hello.pid] = hello.id
        return former or self._watch(hello.pid, hello.id, on_ended)

    def _watch(self, pid: int, name: str, on_ended: OnEnded) -> str:
        def ended() -> None:
            try:
                on_ended(self._names[pid])
            finally:
                del self._names[pid]

        self._names[pid] = name
        self._loop.on_death(pid, ended)
        return name

    def pid(self, name: str) -> int:
        """Return the pid of a gateway, 0 if it is unknown; still known while its end is reported."""
        return next((pid for pid, known in self._names.items() if known == name), 0)

    def kill(self, name: str) -> None:
        """Kill a gateway; do nothing if it is unknown."""
        if pid := self.pid(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
