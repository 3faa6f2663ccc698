"""Clients' files on the disk: who sees them, their bounds, their expiry, and what a writer that was killed leaves."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from protocol.batches import file_store
from protocol.batches.file_store import FileDraft, FileRecord, FileStore
from protocol.config.settings import Settings
from protocol.failures import Code, LemonbusError

NOW = 1_900_000_000.0


class SettableClock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
def store(tmp_path: Path, clock: SettableClock) -> FileStore:
    settings = Settings(state_dir=str(tmp_path), file_bytes=100, files_bytes=300, files_bytes_of_key=150)
    return FileStore(settings, clock)


def write(store: FileStore, owner: str, size: int = 10, purpose: str = "batch", ttl: int = 0) -> FileRecord:
    draft = store.begin(owner)
    try:
        draft.write(b"x" * size)
    except LemonbusError:
        draft.discard()
        raise
    return store.keep(draft, owner, "f.jsonl", purpose, ttl)


def test_each_owner_sees_its_own_files(store: FileStore) -> None:
    mine, other = write(store, "a"), write(store, "b", purpose="batch_output")
    assert store.list("a") == [mine]
    assert sorted(each.id for each in store.list(None)) == sorted([mine.id, other.id])
    assert store.list(None, "batch_output") == [other]
    assert store.get(mine.id, "a") == store.get(mine.id, None) == mine
    for wrong, owner in ((mine.id, "b"), (mine.id, ""), ("file-0", None), ("../x", None), (mine.id + "/..", None)):
        with pytest.raises(LemonbusError, match="there is no file"):
            store.get(wrong, owner)
    assert store.data(mine.id).read_bytes() == b"x" * 10
    store.delete(mine)
    assert store.list("a") == []
    assert not store.data(mine.id).exists()


def test_only_the_server_may_read_the_folder(store: FileStore) -> None:
    record = write(store, "")
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (store.folder, store.data(record.id))]
    assert modes == [0o700, 0o600]


def test_the_bounds(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LemonbusError, match="a file may have 100 bytes"):
        write(store, "a", 101)
    assert list(store.folder.iterdir()) == [], "nothing is left of it"
    write(store, "a", 100)
    write(store, "a", 50)
    with pytest.raises(LemonbusError, match="your files use the space"):
        write(store, "a", 1)
    write(store, "b", 100)
    write(store, "c", 50)
    with pytest.raises(LemonbusError, match="all API keys"):
        write(store, "d", 1)
    monkeypatch.setattr(file_store, "MAX_FILES_OF_KEY", 1)
    store.delete(store.list("b")[0])
    store.delete(store.list("a")[0])
    with pytest.raises(LemonbusError, match="your files"):
        write(store, "c", 1)


def test_a_file_that_has_expired_does_not_exist(store: FileStore, clock: SettableClock) -> None:
    brief, lasting = write(store, "a", ttl=3600), write(store, "a")
    assert brief.expires_at == NOW + 3600
    clock.now += 3599
    assert len(store.list("a")) == 2
    clock.now += 1
    assert store.list("a") == [lasting]
    with pytest.raises(LemonbusError):
        store.get(brief.id, "a")
    assert not store.data(brief.id).exists()


def test_what_a_killed_writer_left_is_removed(store: FileStore, clock: SettableClock) -> None:
    kept = write(store, "a")
    killed = store.begin("a")
    killed.write(b"half")
    left = [store.data(killed.id), store.folder / ".file-x.json.1.new"]
    left[1].write_bytes(b"{")
    for path in (*left, *store.folder.iterdir()):
        os.utime(path, (NOW, NOW))
    clock.now += 3599
    write(store, "a", 1)
    assert all(path.exists() for path in left), "it may still be written"
    clock.now += 2
    write(store, "a", 1)
    killed.discard()
    assert not any(path.exists() for path in left)
    assert store.get(kept.id, "a") == kept
    assert len(store.list("a")) == 3


def test_files_that_are_written_at_the_same_time_share_the_space(store: FileStore) -> None:
    def begin(_number: int) -> FileDraft | Code:
        try:
            return store.begin("a", 75)
        except LemonbusError as problem:
            return problem.failure.code

    with ThreadPoolExecutor() as pool:
        found = list(pool.map(begin, range(4)))
    drafts = [each for each in found if isinstance(each, FileDraft)]
    assert [len(drafts), found.count(Code.TOO_LARGE)] == [2, 2]
    drafts[0].write(b"x" * 75)
    with pytest.raises(LemonbusError, match="a file may have 75 bytes"):
        drafts[0].write(b"x")
    drafts[0].discard()
    others = [store.begin(each) for each in ("b", "c", "d")]
    with pytest.raises(LemonbusError, match="all API keys"):
        store.begin("e")
    for each in others:
        each.discard()
    store.keep(drafts[1], "a", "f.jsonl", "batch")
    assert write(store, "a", 75).bytes == 75, "what was reserved and not written is free"


def test_a_writer_that_was_killed_reserves_nothing(store: FileStore, tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom protocol.batches.file_store import FileStore\nfrom protocol.config.settings import Settings\n"
        "draft = FileStore(Settings(state_dir=sys.argv[1])).begin('a', 100)\nos.kill(os.getpid(), 9)"
    )
    root = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=root, timeout=60, check=False)
    assert len(list(store.folder.glob("*.draft"))) == 1
    assert write(store, "a", 100).bytes == 100
    assert list(store.folder.glob("*.draft")) == []
