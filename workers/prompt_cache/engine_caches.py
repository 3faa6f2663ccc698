"""The prompt caches of one engine: restored before it counts as ready, saved before it ends."""

from __future__ import annotations

from collections.abc import Callable

from protocol.config.settings import Settings
from protocol.failures import LemonbusError
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from workers.backends.engine_facts import EngineFacts
from workers.backends.slot_files import SlotFiles
from workers.engine.connections.connection_pool import EngineConnectionPool
from workers.prompt_cache.disk_thread import in_disk_thread
from workers.prompt_cache.restore import CacheRestore
from workers.prompt_cache.save import COMMIT_LIMIT_S, CacheSave
from workers.prompt_cache.slot_transfer import SlotTransfer, remove_leftovers
from workers.prompt_cache.store import PromptCacheStore


class EngineCaches:
    """What one engine has read of conversations."""

    def __init__(
        self,
        loop: Loop,
        pool: EngineConnectionPool,
        settings: Settings,
        model: str,
        files: SlotFiles,
        log: logs.Logger,
    ) -> None:
        """Do nothing yet."""
        self._loop, self._pool, self._model, self._files, self._log = loop, pool, model, files, log
        self._limit = settings.prompt_cache_save_timeout
        self._store = PromptCacheStore(settings.cache_dir, settings.prompt_cache_bytes)
        self._key = ""
        """Empty until the engine was asked about itself, or if the key of its files is unknown."""
        self._restore: CacheRestore | None = None
        self._save: CacheSave | None = None
        remove_leftovers(files.folder)

    @property
    def restored_tokens(self) -> int:
        """Tokens that the engine had from the beginning."""
        return self._restore.tokens if self._restore else 0

    @property
    def leave_seconds(self) -> float:
        """How long :meth:`save` may take at most."""
        return self._limit + COMMIT_LIMIT_S

    def restore(self, facts: EngineFacts, done: Callable[[bool], None], *, use: bool) -> None:
        """Restore what was kept, if ``use`` is true. ``done`` is called with whether the engine may be used."""
        try:
            self._key = self._files.key(facts)
        except (OSError, LemonbusError) as problem:
            self._log.warning("prompt caches are not kept", reason=str(problem))
        if not use or not self._key:
            done(True)
            return
        self._restore = CacheRestore(self._transfer(), done)

    def save(self, done: Callable[[], None]) -> None:
        """Save what the engine has read since its start, if it has read anything. Call ``done`` when it may end."""
        if self._save is not None:
            return  # it is being saved, and ends then
        if not self._key or not self._files.changed:
            done()
            return
        self._save = CacheSave(self._transfer(), self._limit, done)

    def _transfer(self) -> SlotTransfer:
        return SlotTransfer(self._loop, self._pool, self._store, self._files, self._model, self._key, self._log)

    def abort(self, why: str) -> None:
        """Stop what is in progress: the engine is to end at once."""
        if self._restore is not None:
            self._restore.stop()
        if self._save is not None:
            self._save.abort(why)

    def engine_ended(self) -> bool:
        """Stop what is in progress: the engine has ended.

        Return whether a file that it was reading may be the reason.
        """
        if self._save is not None:
            self._save.drop()
        return self._restore is not None and self._restore.engine_died()


def tidy_in_background(loop: Loop, settings: Settings, log: logs.Logger) -> None:
    """Remove what dead processes have left, and what exceeds ``prompt_cache_bytes``."""
    store = PromptCacheStore(settings.cache_dir, settings.prompt_cache_bytes)
    if not store.root.is_dir():
        return  # most servers keep none, and need no thread for this

    def report(problem: Exception | None) -> None:
        if problem is not None:
            log.warning("kept prompt caches cannot be cleaned up", reason=str(problem))

    in_disk_thread(loop, store.tidy, lambda outcome: report(outcome.problem))
