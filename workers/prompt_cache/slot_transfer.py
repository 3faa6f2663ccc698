"""What a save and a restore have in common: the engine, the store, and links to the files of slots.

An engine only takes bare names in its own folder. The links have names that begin with a dot, unlike names that clients
may send.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from protocol.runtime import logs
from protocol.runtime.loop import Loop
from workers.backends.slot_files import SlotFiles
from workers.engine.connections.connection_pool import EngineConnectionPool
from workers.prompt_cache.store import PromptCacheStore, slot_file

_PREFIX: Final = ".prompt-cache-"


class SlotTransfer(NamedTuple):
    """Whose slots are saved or restored, and where they are kept."""

    loop: Loop
    pool: EngineConnectionPool
    store: PromptCacheStore
    files: SlotFiles
    model: str
    key: str
    """See :meth:`~workers.backends.slot_files.SlotFiles.key`."""
    log: logs.Logger


class CacheLinks:
    """The links of one save or restore."""

    def __init__(self, engine_folder: Path, files: Path, slots: Iterable[int]) -> None:
        """Link the files of these slots, which need not exist yet, from the engine's folder; raises OSError."""
        self._folder = engine_folder
        self._names = {slot: f"{_PREFIX}{secrets.token_hex(8)}-{slot}" for slot in slots}
        try:
            for slot, name in self._names.items():
                (engine_folder / name).symlink_to(files / slot_file(slot))
        except OSError:
            self.remove()
            raise

    def name(self, slot: int) -> str:
        """Return the name under which the engine finds a slot's file."""
        return self._names[slot]

    def remove(self) -> None:
        """Remove the links."""
        for name in self._names.values():
            with suppress(OSError):
                (self._folder / name).unlink(missing_ok=True)


def remove_leftovers(engine_folder: Path) -> None:
    """Remove the links of killed processes, which lead nowhere any more."""
    with suppress(OSError):
        for link in engine_folder.glob(f"{_PREFIX}*"):
            if link.is_symlink() and not link.exists():
                link.unlink(missing_ok=True)
