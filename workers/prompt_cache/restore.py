"""Restores the prompt caches that an earlier engine of the same model has left, before the new engine counts as ready.

Invariants:

* ``done`` is called exactly once, unless :meth:`CacheRestore.stop` comes first.
* If an engine was asked to read a file but did not report that it has read all of it, it is not used: what it has read
  may spoil later answers, or it has died. The entry is removed, so that this happens only once.
* Any other failure costs the prompt caches, but not the load.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from workers.engine.connections.exchange import BufferedResponse
from workers.prompt_cache.disk_thread import DiskResult, in_disk_thread
from workers.prompt_cache.slot_transfer import CacheLinks, SlotTransfer
from workers.prompt_cache.store import SavedCache

RESTORE_LIMIT_S: Final = 10.0
"""Time limit to verify and read the files. Beyond it, the prompts are read again."""


class CacheRestore:
    """One restore."""

    def __init__(self, transfer: SlotTransfer, done: Callable[[bool], None]) -> None:
        """Begin at once. ``done`` is called with whether the engine may be used."""
        self._loop, self._pool, self._store, self._files, model, key, self._log = transfer
        self._done = done
        self._started_at = self._loop.now()
        self._cache: SavedCache | None = None
        """What the engine reads."""
        self._links: CacheLinks | None = None
        self._over = False
        self.tokens = 0
        """Tokens that the engine has again."""
        self._timer = self._loop.call_later(RESTORE_LIMIT_S, self._late)
        in_disk_thread(self._loop, lambda: self._store.find(model, key), self._found)

    def stop(self) -> bool:
        """Stop restoring: the engine has ended, or is to end. Return whether it was reading files."""
        reading = not self._over and self._cache is not None
        if not self._over:
            self._end()
        return reading

    def engine_died(self) -> bool:
        """Note that the engine has ended. Return whether a file may have been the reason; its entry is then removed."""
        if not self.stop():
            return False
        self._remove("the engine died while it read it")
        return True

    def _found(self, outcome: DiskResult[SavedCache | None]) -> None:
        if self._over:
            return
        if outcome.problem is not None:
            self._log.warning("kept prompt caches cannot be used", reason=str(outcome.problem))
            self._finish(usable=True)
        elif outcome.value is None:
            self._finish(usable=True)
        else:
            slots = [slot.slot for slot in outcome.value.manifest.slots]
            try:
                self._links = CacheLinks(self._files.folder, outcome.value.folder, slots)
            except OSError as problem:
                self._log.warning("kept prompt caches cannot be used", reason=str(problem))
                self._finish(usable=True)
                return
            self._cache = outcome.value
            self._restore(0)

    def _restore(self, index: int) -> None:
        cache, links = self._cache, self._links
        if cache is None or links is None:
            return
        if index == len(cache.manifest.slots):
            self._succeed(cache)
            return
        saved = cache.manifest.slots[index]

        def answered(status: int, body: bytes) -> None:
            if self._over:
                return
            problem = ""
            try:
                report = self._files.report(status, body)
                if report != (saved.tokens, saved.size):
                    problem = f"{report.tokens} of {saved.tokens} tokens were read"
            except ValueError as refusal:
                problem = str(refusal)
            if problem:
                self._remove(f"slot {saved.slot}: {problem}")
                self._finish(usable=False)
                return
            self._restore(index + 1)

        self._pool.send(self._files.restore(saved.slot, links.name(saved.slot)), BufferedResponse(answered))

    def _succeed(self, cache: SavedCache) -> None:
        self.tokens = cache.manifest.tokens
        self._log.info(
            "prompt caches restored",
            slots=len(cache.manifest.slots),
            tokens=self.tokens,
            bytes=cache.manifest.size,
            seconds=round(self._loop.now() - self._started_at, 3),
        )
        self._finish(usable=True)

    def _late(self) -> None:
        if self._cache is not None:
            self._remove(f"the engine did not read them within {RESTORE_LIMIT_S:g} s")
            self._finish(usable=False)
        else:
            self._log.warning("kept prompt caches are not used", reason=f"not verified within {RESTORE_LIMIT_S:g} s")
            self._finish(usable=True)

    def _remove(self, why: str) -> None:
        cache = self._cache
        if cache is not None:
            self._log.warning("kept prompt caches removed", reason=why, bytes=cache.manifest.size)
            in_disk_thread(self._loop, lambda: self._store.remove(cache.folder), lambda _outcome: None)

    def _finish(self, *, usable: bool) -> None:
        self._end()
        self._done(usable)

    def _end(self) -> None:
        self._over = True
        self._timer.cancel()
        if self._links is not None:
            self._links.remove()
