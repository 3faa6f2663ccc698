"""Request bodies that are too large for the bus, as files in the runtime directory with a common limit."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import gevent

from protocol.failures import Code, Failure

_STEP: Final = 1024 * 1024
"""Bytes that are written before other greenlets run."""


class Spool:
    """The spool files of this gateway; each is removed when its request ends."""

    def __init__(self, folder: Path, gateway: str, limit: int) -> None:
        """Keep files in ``folder``, where all gateways together have at most ``limit`` bytes."""
        self._folder = folder
        self._gateway = gateway
        self._limit = limit
        self._count = 0

    def keep(self, body: bytes) -> str:
        """Write a body to a file, and return its name in the spool. Raises ``spool_full``."""
        if self._used() + len(body) > self._limit:
            raise Failure(Code.SPOOL_FULL, "too many large requests wait; try again", retry_after=5).raised()
        self._count += 1
        name = f"{self._gateway}-{self._count}"
        path = self._folder / name
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                for start in range(0, len(body), _STEP):
                    file.write(memoryview(body)[start : start + _STEP])
                    gevent.sleep(0)
        except OSError as problem:
            path.unlink(missing_ok=True)
            raise Failure(
                Code.SPOOL_FULL, "a large request cannot be kept now; try again", retry_after=5, detail=str(problem)
            ).raised() from problem
        return name

    def _used(self) -> int:
        total = 0
        for entry in os.scandir(self._folder):
            try:
                total += entry.stat().st_size
            except FileNotFoundError:
                continue
        return total

    def drop(self, name: str) -> None:
        """Remove a file that :meth:`keep` made."""
        (self._folder / name).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove all files of this gateway."""
        for entry in self._folder.glob(f"{self._gateway}-*"):
            entry.unlink(missing_ok=True)
