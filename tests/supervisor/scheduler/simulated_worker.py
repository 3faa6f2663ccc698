"""A simulated worker: the commands it got, and what it runs."""

from __future__ import annotations

from protocol.ids import RequestKey


class SimulatedWorker:
    def __init__(self) -> None:
        self.commands: list[object] = []
        self.running: list[RequestKey] = []
        self.abandoned: set[RequestKey] = set()
        """The attempts that it has reported as abandoned, and its engine works on."""
