"""The interface to an engine that writes the prompt caches of its slots into files, and reads them again."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Protocol

from workers.backends.engine_facts import EngineFacts
from workers.backends.engine_request import EngineRequest


class SlotReport(NamedTuple):
    """What an engine says about the file of a slot that it has written or read. ``size`` in bytes."""

    tokens: int
    size: int


class SlotFiles(Protocol):
    """How one engine writes the prompt caches of its slots into files, and reads them again."""

    folder: Path
    """The folder in which the engine writes and reads."""
    slots: int

    @property
    def changed(self) -> bool:
        """Whether the engine may have read prompts since its start."""

    def key(self, facts: EngineFacts) -> str:
        """Return the key of its files: engines with the same key may read them. Raises OSError for a missing file."""

    def save(self, slot: int, name: str) -> EngineRequest:
        """Return the request to write a slot into a file of :attr:`folder`."""

    def restore(self, slot: int, name: str) -> EngineRequest:
        """Return the request to read a slot from a file of :attr:`folder`."""

    def report(self, status: int, answer: bytes) -> SlotReport:
        """Read the answer to either request; raises ValueError if it is a refusal, malformed, or did not arrive (status 0)."""
