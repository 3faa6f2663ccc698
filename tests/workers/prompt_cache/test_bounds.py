"""Saving and restoring prompt caches ends in time, whatever the disk and the engine do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn, cast

import pytest

from protocol.models import prompt_caches
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from workers.backends.engine_facts import EngineFacts
from workers.backends.engine_request import EngineRequest
from workers.backends.slot_files import SlotReport
from workers.engine.connections.connection_pool import EngineConnectionPool
from workers.engine.connections.exchange import ResponseHandler
from workers.prompt_cache import restore, save
from workers.prompt_cache.restore import CacheRestore
from workers.prompt_cache.save import CacheSave
from workers.prompt_cache.slot_transfer import SlotTransfer
from workers.prompt_cache.store import Draft, PromptCacheStore, SavedCache

KEY = "0" * 32
SIZE = 1000
"""Bytes of a slot."""
LIMIT = 0.3
EARLIEST = 0.9 * LIMIT
"""Earliest end in seconds: when a timer is set, the loop's clock may have been read a moment before."""
LATEST = 10.0
"""Latest end in seconds, on a busy machine."""


class SlotFilesOfTwo:
    """The slots of an engine whose answers say how many bytes a file has."""

    slots = 2
    changed = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def key(self, _facts: EngineFacts) -> str:
        return KEY

    def save(self, _slot: int, name: str) -> EngineRequest:
        return EngineRequest("save", name)

    def restore(self, _slot: int, name: str) -> EngineRequest:
        return EngineRequest("restore", name)

    def report(self, status: int, answer: bytes) -> SlotReport:
        if status != 200:
            raise ValueError(answer.decode())
        return SlotReport(int(answer), int(answer))


class OneExchange:
    cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Engine:
    """Stands in for the connections to an engine: it answers a given number of requests, and no more."""

    def __init__(self, loop: Loop, folder: Path, answers: int, on_silence: Callable[[], None]) -> None:
        self._loop, self._folder, self._answers, self._on_silence = loop, folder, answers, on_silence
        self.exchanges: list[OneExchange] = []

    def send(self, request: EngineRequest, handler: ResponseHandler) -> OneExchange:
        self.exchanges.append(OneExchange())
        path = self._folder / request.path
        if request.method == "save":
            path.write_bytes(b"x" * SIZE)
        if len(self.exchanges) <= self._answers:
            self._loop.call_later(0.0, lambda: self._answer(handler, path.stat().st_size))
        else:
            self._on_silence()
        return self.exchanges[-1]

    @staticmethod
    def _answer(handler: ResponseHandler, size: int) -> None:
        handler.began(200)
        handler.data(str(size).encode())
        handler.ended()


class Bench:
    """A loop, a store, and everything that a save or restore needs."""

    def __init__(self, folder: Path) -> None:
        self._skipped = 0.0
        """Seconds that have only passed on the loop's clock."""
        self.loop = Loop(lambda: time.monotonic() + self._skipped)
        self.engine_folder = folder / "engine"
        self.engine_folder.mkdir()
        self.cache_dir = folder
        self.done: list[bool] = []

    def _until_done(self, begun: float) -> float:
        while not self.done:
            assert time.monotonic() < begun + LATEST, "it never ends"
            self.loop.run_once(0.05)
        return time.monotonic() - begun

    def save(
        self, store: PromptCacheStore | None = None, answers: int = 2, limit: float = LIMIT, skipped: float = 0.0
    ) -> float:
        """Save; return the seconds until the engine may end.

        ``skipped``: how many seconds pass as soon as the engine is asked for what it does not answer. So what it does
        answer cannot come too late.
        """
        begun = time.monotonic()  # before: the limit counts from there, also if this process must wait for a core
        CacheSave(self._transfer(answers, store, skipped), limit, lambda: self.done.append(True))
        return self._until_done(begun)

    def restore(self, store: PromptCacheStore | None = None, answers: int = 2, skipped: float = 0.0) -> float:
        begun = time.monotonic()
        CacheRestore(self._transfer(answers, store, skipped), self.done.append)
        return self._until_done(begun)

    def _transfer(self, answers: int, store: PromptCacheStore | None, skipped: float) -> SlotTransfer:
        def skip() -> None:
            self._skipped += skipped

        files = SlotFilesOfTwo(self.engine_folder)
        pool = cast("EngineConnectionPool", Engine(self.loop, self.engine_folder, answers, skip))
        return SlotTransfer(self.loop, pool, store or self.store(), files, "m", KEY, logs.get_logger())

    def store(self) -> PromptCacheStore:
        return PromptCacheStore(str(self.cache_dir), 100_000, min_free=0)

    def slots(self) -> list[str]:
        """The slots of the one entry."""
        found = self.store().find("m", KEY)
        return [slot.file for slot in found.manifest.slots] if found else []


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.loop.close()


def test_a_save_and_a_restore_of_two_slots(bench: Bench) -> None:
    bench.save(limit=LATEST)
    assert bench.slots() == ["slot-0", "slot-1"]
    bench.done.clear()
    bench.restore()
    assert bench.done == [True]
    assert not list(bench.engine_folder.iterdir()), "the links are gone"


def test_a_save_that_is_cut_off_keeps_the_slots_that_are_whole(bench: Bench) -> None:
    bench.save(answers=1, limit=LATEST, skipped=LATEST)
    assert bench.slots() == ["slot-0"]


class StuckDisk(PromptCacheStore):
    """A store on a disk that never answers."""

    stuck = threading.Event()

    def begin(self) -> NoReturn:
        self.stuck.wait(60)
        raise OSError("never")

    def find(self, model: str, key: str) -> NoReturn:
        self.stuck.wait(60)
        raise OSError("never")


def test_a_disk_that_never_answers_delays_no_engines_end_and_no_load(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = StuckDisk(str(bench.cache_dir), 100_000, min_free=0)
    assert EARLIEST <= bench.save(store) < LATEST
    bench.done.clear()
    monkeypatch.setattr(restore, "RESTORE_LIMIT_S", LIMIT)
    assert EARLIEST <= bench.restore(store) < LATEST
    assert bench.done == [True], "the engine was not touched"
    StuckDisk.stuck.set()


class StuckCommit(PromptCacheStore):
    """A store whose last step never ends."""

    stuck = threading.Event()

    def commit(self, *_: Any) -> NoReturn:
        self.stuck.wait(60)
        raise OSError("never")


def test_a_last_step_that_never_ends_delays_no_engines_end(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(save, "COMMIT_LIMIT_S", LIMIT)
    store = StuckCommit(str(bench.cache_dir), 100_000, min_free=0)
    assert EARLIEST <= bench.save(store, limit=LATEST) < LATEST
    StuckCommit.stuck.set()
    assert bench.slots() == []


class FullDisk(PromptCacheStore):
    """A store on a disk that other programs fill during a save."""

    full = False

    def free_bytes(self) -> int:
        return 0 if self.full else 1

    def begin(self) -> Draft:
        draft = super().begin()
        self.full = True
        return draft


def test_a_disk_that_becomes_full_ends_a_save(bench: Bench) -> None:
    assert bench.save(FullDisk(str(bench.cache_dir), 100_000, min_free=0), answers=1, limit=LATEST) < LATEST / 2
    assert bench.slots() == ["slot-0"]
    drafts = [folder for folder in bench.store().root.iterdir() if folder.name.startswith(".")]
    assert not drafts


def test_more_than_the_limit_ends_a_save(bench: Bench) -> None:
    small = PromptCacheStore(str(bench.cache_dir), 2 * SIZE - 1, min_free=0)
    assert bench.save(small, answers=1, limit=LATEST) < LATEST / 2
    assert bench.slots() == ["slot-0"]


def test_an_engine_that_does_not_come_to_an_end_of_a_file_is_not_used(bench: Bench) -> None:
    bench.save(limit=LATEST)
    bench.done.clear()
    bench.restore(answers=1, skipped=restore.RESTORE_LIMIT_S)
    assert bench.done == [False]
    assert not list(bench.engine_folder.iterdir())
    gone = time.monotonic() + LATEST
    while prompt_caches.entries_of(str(bench.cache_dir), "m"):
        assert time.monotonic() < gone, "the entry stays"
        bench.loop.run_once(0.01)


class OtherSize(PromptCacheStore):
    """A store whose entries contradict the engine's answers."""

    def find(self, model: str, key: str) -> SavedCache | None:
        found = super().find(model, key)
        if found is not None:
            (self.root / found.folder / "slot-1").write_bytes(b"longer" * 100)
        return found


def test_an_engine_that_reads_something_else_than_was_written_is_not_used(bench: Bench) -> None:
    bench.save(limit=LATEST)
    bench.done.clear()
    bench.restore(OtherSize(str(bench.cache_dir), 100_000, min_free=0))
    assert bench.done == [False]
