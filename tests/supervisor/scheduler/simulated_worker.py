"""A simulated worker: the commands it got, and what it runs."""

from __future__ import annotations

from protocol.ids import RequestKey
from protocol.models.nodes import HEAD


class SimulatedWorker:
    def __init__(self, node: str = HEAD) -> None:
        self.node = node
        self.commands: list[object] = []
        self.need: dict[str, int] = {}
        """What its engine was started with."""
        self.held: dict[str, int] = {}
        """What its engine holds."""
        self.running: list[RequestKey] = []
        self.abandoned: set[RequestKey] = set()
        """The attempts that it has reported as abandoned, and its engine works on."""
