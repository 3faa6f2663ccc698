"""An engine that runs elsewhere: what :class:`~workers.engine.process.EngineProcess` is for a process, without one.

It has no output, no memory and no processor time here. It ends when this worker is told to unload the model, or when none of its
servers can be reached.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

from protocol.config.server_address import ServerAddress
from protocol.runtime.loop import Loop
from workers.engine.exit_cause import EngineExit, ExitCause
from workers.engine.process import EngineProcess
from workers.engine.process_usage import ProcessUsage


class RemoteEngine:
    """The servers of a model, as something that begins and ends."""

    pid = 0
    command: tuple[str, ...] = ()
    control_groups: tuple[str, ...] = ()

    def __init__(self, loop: Loop, address: ServerAddress, on_exit: Callable[[EngineExit], None]) -> None:
        """Begin. ``address``: the one to show."""
        self._loop, self._on_exit = loop, on_exit
        self.url = address.url + address.path
        self._over = False

    def is_listening(self) -> bool:
        """Return True: only an answer tells."""
        return True

    def end(self, reason: str, detail: str = "") -> None:
        """End, once. ``reason``: after the name of the engine, in a sentence. ``detail``: for administrators."""
        if not self._over:
            self._over = True
            self._loop.call_later(0.0, lambda: self._on_exit(EngineExit(reason, detail, ExitCause.OTHER)))

    def stop(self) -> None:
        """End because the model is unloaded, or cannot be loaded."""
        self.end("is no longer asked")

    def signal(self, _number: signal.Signals) -> None:
        """End: this worker has given up on it."""
        self.end("is no longer asked")

    def watch_memory_kills(self) -> None:
        """Do nothing: there is no process."""

    def read_output(self) -> None:
        """Do nothing: there is no output."""

    def resident(self) -> int:
        """Return 0."""
        return 0

    def memory_used(self) -> int:
        """Return 0."""
        return 0

    def proportional(self) -> int:
        """Return 0."""
        return 0

    def resident_of_tree(self) -> int:
        """Return 0."""
        return 0

    def usage(self) -> ProcessUsage:
        """Return nothing used."""
        return ProcessUsage()


Engine = EngineProcess | RemoteEngine
"""What runs a model."""
