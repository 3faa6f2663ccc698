"""What the node of an agent has: read at the start, with other settings, and again every few seconds by a thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import structs

from protocol.config.agent_settings import AgentSettings
from protocol.config.settings import Settings
from protocol.messages.nodes import NodeHardware
from protocol.models.nodes import NodeFacts
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from supervisor.nodes.node_facts import read_node_facts, read_node_hardware
from supervisor.persistence.disk_thread import DiskThread

READ_S: Final = 5.0
"""How often it is read again what the node has: backends may be installed there. That takes some milliseconds."""
_CLOSE_S: Final = 0.02

log = logs.get_logger()


class OwnFacts:
    """The facts and the hardware of this node, as they were read last."""

    def __init__(self, settings: AgentSettings, loop: Loop, address: str, changed: Callable[[], None]) -> None:
        """Read them. ``address``: where other nodes reach this one. ``changed``: called when they differ from before."""
        self._settings, self._loop, self._address, self._changed = settings, loop, address, changed
        self._process_settings = self.with_own_folders(Settings())
        """Those of the agent's processes: the supervisor sends them. They name programs that the facts depend on."""
        self.facts, self.hardware = self._read(self._process_settings)
        self._disk = DiskThread(loop, "facts")
        self._reading = False
        """Whether the thread reads what the node has. A disk that hangs holds it up, and nothing else."""

    def begin(self) -> None:
        """Read them again from now on."""
        self._loop.every(READ_S, self._read_again)

    def close(self) -> None:
        """End the thread."""
        self._disk.close(_CLOSE_S)

    def with_own_folders(self, settings: Settings) -> Settings:
        """Return settings with the folders of this node instead of the head's."""
        own = self._settings
        return structs.replace(
            settings,
            runtime_dir=own.runtime_dir,
            cache_dir=own.cache_dir,
            state_dir=own.state_dir,
            machine_dir=own.machine_dir,
        )

    def configure(self, settings: Settings) -> None:
        """Read them with other settings of the agent's processes."""
        self._process_settings = settings
        self._take(*self._read(settings))

    def _read_again(self) -> None:
        if self._reading:
            return
        self._reading, settings = True, self._process_settings

        def done(read: tuple[NodeFacts, NodeHardware] | Exception) -> None:
            self._reading = False
            if isinstance(read, Exception):
                log.warning("the facts of this node cannot be read", reason=str(read))
            elif settings is self._process_settings:
                self._take(*read)

        self._disk.run(lambda: self._read(settings), done)

    def _take(self, facts: NodeFacts, hardware: NodeHardware) -> None:
        if (facts, hardware) != (self.facts, self.hardware):
            self.facts, self.hardware = facts, hardware
            self._changed()

    def _read(self, settings: Settings) -> tuple[NodeFacts, NodeHardware]:
        own = self._settings
        facts = read_node_facts(settings, own.node, self._address, labels=own.labels, resources=own.resources)
        return facts, read_node_hardware(settings)
