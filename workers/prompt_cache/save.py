"""Saves the prompt caches of an engine that is about to end: slot by slot, within a time limit, into one entry.

Invariants:

* ``done`` is called exactly once, unless :meth:`CacheSave.drop` comes first. It is called whatever happens, at the
  latest after the limit plus ``COMMIT_LIMIT_S``.
* An entry only has slots that the engine has written completely. A save that is cut off keeps these.
* Nothing here raises: a prompt cache that is not saved only costs time later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from protocol.runtime.loop import Timer
from workers.engine.connections.exchange import BufferedResponse, EngineExchange
from workers.prompt_cache.disk_thread import DiskResult, in_disk_thread
from workers.prompt_cache.slot_transfer import CacheLinks, SlotTransfer
from workers.prompt_cache.store import Draft, SavedCache, SavedSlot

MIN_TOKENS: Final = 32
"""A slot with fewer tokens is quickly read again; the warm-up leaves such a slot."""
COMMIT_LIMIT_S: Final = 1.0
"""Time limit of the last step, which renames a folder and removes old ones."""
_CHECK_INTERVAL_S: Final = 0.05


class CacheSave:
    """One save."""

    def __init__(self, transfer: SlotTransfer, limit: float, done: Callable[[], None]) -> None:
        """Begin at once; ``limit`` in seconds."""
        self._loop, self._pool, self._store, self._files, self._model, self._key, self._log = transfer
        self._limit, self._done = limit, done
        self._started_at = self._loop.now()
        self._draft: Draft | None = None
        self._links: CacheLinks | None = None
        self._exchange: EngineExchange | None = None
        self._saved: list[SavedSlot] = []
        self._problem = ""
        """Why not everything was saved."""
        self._committing = False
        self._over = False
        self._limit_timer = self._loop.call_later(limit, self._late)
        self._check_timer: Timer | None = None
        in_disk_thread(self._loop, self._prepare, self._prepared)

    def abort(self, why: str) -> None:
        """Stop saving, and keep nothing, unless the last step is in progress: the process must end."""
        if not self._over:
            self._problem = why
            if not self._committing:
                self._saved = []
            self._finish()

    def drop(self) -> None:
        """Stop saving: the engine has ended. ``done`` is not called."""
        self._done = lambda: None
        self.abort("the engine has ended")

    # One step after the other.

    def _prepare(self) -> tuple[Draft, CacheLinks]:
        draft = self._store.begin()
        try:
            return draft, CacheLinks(self._files.folder, draft.folder, range(self._files.slots))
        except OSError:
            draft.discard()
            raise

    def _prepared(self, outcome: DiskResult[tuple[Draft, CacheLinks]]) -> None:
        if outcome.problem is not None:
            self._give_up(str(outcome.problem))
            return
        self._draft, self._links = outcome.value
        if self._over:
            self._clean_up()
            return
        self._check_timer = self._loop.call_later(_CHECK_INTERVAL_S, self._check)
        self._save(0)

    def _save(self, slot: int) -> None:
        if slot == self._files.slots or self._links is None:
            self._commit()
            return
        request = self._files.save(slot, self._links.name(slot))
        self._exchange = self._pool.send(
            request, BufferedResponse(lambda status, body: self._answered(slot, status, body))
        )

    def _answered(self, slot: int, status: int, body: bytes) -> None:
        if self._over or self._committing or self._draft is None:
            return
        try:
            report = self._files.report(status, body)
        except ValueError as problem:
            self._give_up(f"slot {slot}: {problem}")
            return
        if report.tokens < MIN_TOKENS:
            self._save(slot + 1)
            return
        draft = self._draft

        def finished(outcome: DiskResult[SavedSlot]) -> None:
            if self._over or self._committing:
                return
            if outcome.problem is not None:
                self._give_up(str(outcome.problem))
            elif outcome.value.size != report.size:
                self._give_up(f"slot {slot} has {outcome.value.size} of {report.size} bytes")
            else:
                self._saved.append(outcome.value)
                self._save(slot + 1)

        in_disk_thread(self._loop, lambda: draft.finished(slot, report.tokens), finished)

    def _commit(self) -> None:
        draft, saved = self._draft, self._saved
        if draft is None or not saved:
            self._finish()
            return
        self._committing = True
        self._limit_timer.cancel()
        self._limit_timer = self._loop.call_later(COMMIT_LIMIT_S, self._finish)
        in_disk_thread(self._loop, lambda: self._store.commit(draft, self._model, self._key, saved), self._committed)

    def _committed(self, outcome: DiskResult[SavedCache]) -> None:
        if self._over:
            return
        if outcome.problem is not None:
            self._problem, self._saved = str(outcome.problem), []
        else:
            self._draft = None
        self._committing = False
        self._finish()

    # What may come between.

    def _check(self) -> None:
        self._check_timer = None
        if self._over or self._committing or self._draft is None:
            return
        try:
            free = self._store.free_bytes()
        except OSError:
            free = 0
        if self._draft.size() > self._store.limit:
            self._give_up("they are larger than prompt_cache_bytes")
        elif free <= 0:
            self._give_up("the disk is full")
        else:
            self._check_timer = self._loop.call_later(_CHECK_INTERVAL_S, self._check)

    def _late(self) -> None:
        self._give_up(f"they were not saved within {self._limit:g} s")

    def _give_up(self, why: str) -> None:
        """Keep what is complete, and let the engine end."""
        if self._over or self._committing:
            return
        self._problem = why
        if self._exchange is not None:
            self._exchange.cancel()
        self._commit()

    def _finish(self) -> None:
        if self._over:
            return
        self._over = True
        self._report()
        self._limit_timer.cancel()
        if self._check_timer is not None:
            self._check_timer.cancel()
        if self._exchange is not None:
            self._exchange.cancel()
        self._clean_up()
        self._done()

    def _clean_up(self) -> None:
        if self._links is not None:
            self._links.remove()
        if self._draft is not None and not self._committing:
            # Otherwise a thread is working on it, and the next process removes what it leaves.
            self._draft.discard()

    def _report(self) -> None:
        seconds = round(self._loop.now() - self._started_at, 3)
        if self._problem or self._committing:
            reason = self._problem or "the disk takes too long"
            self._log.warning("prompt caches not saved", reason=reason, saved_slots=len(self._saved), seconds=seconds)
        elif self._saved:
            self._log.info(
                "prompt caches saved",
                slots=len(self._saved),
                tokens=sum(slot.tokens for slot in self._saved),
                bytes=sum(slot.size for slot in self._saved),
                seconds=seconds,
            )
