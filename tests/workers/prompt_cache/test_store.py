"""The files of kept prompt caches on a real disk: complete or absent, bounded, private."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from protocol.models import prompt_caches
from workers.prompt_cache.slot_transfer import CacheLinks, remove_leftovers
from workers.prompt_cache.store import MANIFEST, PromptCacheStore, SavedCache

KEY, OTHER = "0" * 32, "1" * 32
SIZE = 3_000_000
"""More than is read at once."""


@pytest.fixture
def store(tmp_path: Path) -> PromptCacheStore:
    return PromptCacheStore(str(tmp_path), 10 * SIZE, min_free=0)


def save(store: PromptCacheStore, model: str = "m", key: str = KEY, slots: tuple[int, ...] = (0, 2)) -> SavedCache:
    draft = store.begin()
    for slot in (*slots, 7):
        (draft.folder / f"slot-{slot}").write_bytes(bytes([slot]) * SIZE)
    return store.commit(draft, model, key, [draft.finished(slot, 100) for slot in slots])


def file_names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def names(store: PromptCacheStore) -> list[str]:
    return sorted(folder.name for folder in store.root.iterdir() if folder.is_dir())


def test_what_was_saved_is_found(store: PromptCacheStore, tmp_path: Path) -> None:
    assert store.find("m", KEY) is None
    saved = save(store)
    found = store.find("m", KEY)
    assert found == saved
    assert (found.manifest.model, found.manifest.size, found.manifest.tokens) == ("m", 2 * SIZE, 200)
    assert [slot.slot for slot in found.manifest.slots] == [0, 2]
    assert file_names(found.folder) == [MANIFEST, "slot-0", "slot-2"], "slot 7 was not finished"
    assert store.find("m", OTHER) is None
    assert store.find("n", KEY) is None
    assert stat.S_IMODE(store.root.stat().st_mode) == 0o700
    assert prompt_caches.entries_of(str(tmp_path), "m") == [saved.folder]


def test_a_folder_that_others_may_read_is_closed(store: PromptCacheStore) -> None:
    store.root.mkdir(mode=0o755)
    save(store)
    assert stat.S_IMODE(store.root.stat().st_mode) == 0o700


def test_a_later_save_replaces_an_earlier_one_of_the_same_key(store: PromptCacheStore) -> None:
    first = save(store)
    other = save(store, key=OTHER)
    second = save(store, slots=(1,))
    assert names(store) == sorted([second.folder.name, other.folder.name])
    assert store.find("m", KEY) == second
    assert not first.folder.exists()


def test_a_later_save_replaces_an_earlier_one_after_the_clock_was_set_back(
    store: PromptCacheStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = save(store)
    monkeypatch.setattr(time, "time_ns", lambda: 1_000)
    second = save(store, slots=(1,))
    assert store.find("m", KEY) == second
    assert names(store) == [second.folder.name]
    assert not first.folder.exists()


def broken_end(saved: SavedCache) -> None:
    os.truncate(saved.folder / "slot-0", SIZE - 1)


def broken_byte(saved: SavedCache) -> None:
    with (saved.folder / "slot-2").open("r+b") as file:
        file.seek(SIZE // 2)
        file.write(b"\xff")


def longer(saved: SavedCache) -> None:
    with (saved.folder / "slot-2").open("ab") as file:
        file.write(b"\2")


def no_slot(saved: SavedCache) -> None:
    (saved.folder / "slot-2").unlink()


def no_manifest(saved: SavedCache) -> None:
    (saved.folder / MANIFEST).unlink()


def broken_manifest(saved: SavedCache) -> None:
    (saved.folder / MANIFEST).write_bytes(b'{"model": "m"')


@pytest.mark.parametrize("damage", [broken_end, broken_byte, longer, no_slot, no_manifest, broken_manifest])
def test_a_broken_entry_is_removed_instead_of_read(store: PromptCacheStore, damage: object) -> None:
    damage(save(store))  # type: ignore[operator] - one of the functions above
    with pytest.raises(ValueError, match=r"."):
        store.find("m", KEY)
    assert names(store) == []
    assert store.find("m", KEY) is None


def test_the_limit_holds_over_all_models_and_the_least_recently_used_leave(store: PromptCacheStore) -> None:
    small = PromptCacheStore(str(store.root.parent), 5 * SIZE, min_free=0)
    a, b = save(small, "a"), save(small, "b")
    os.utime(b.folder / MANIFEST, (1, 1))
    os.utime(a.folder / MANIFEST, (0, 0))
    assert small.find("a", KEY) == a, "used again, after b"
    c = save(small, "c")
    assert names(small) == sorted([a.folder.name, c.folder.name])
    PromptCacheStore(str(store.root.parent), 0).tidy()
    assert names(small) == []


def test_a_full_disk_costs_old_entries_and_then_is_an_error(store: PromptCacheStore) -> None:
    save(store, "a")
    full = PromptCacheStore(str(store.root.parent), store.limit, min_free=2**62)
    with pytest.raises(OSError, match="are free"):
        full.begin()
    assert names(store) == []


def test_drafts_of_dead_processes_are_removed_and_no_others(store: PromptCacheStore) -> None:
    save(store)
    mine = store.begin()
    code = (
        "import os, sys; from workers.prompt_cache.store import PromptCacheStore;"
        "draft = PromptCacheStore(sys.argv[1], 10**9, 0).begin(); (draft.folder / 'slot-0').write_bytes(b'x');"
        "print(draft.folder, flush=True); os.kill(os.getpid(), 9)"
    )
    root = Path(__file__).parents[3]
    ran = subprocess.run(
        [sys.executable, "-c", code, str(store.root.parent)], cwd=root, capture_output=True, text=True, check=False
    )
    left = Path(ran.stdout.strip())
    assert left.is_dir(), ran.stderr
    store.tidy()
    assert not left.exists()
    assert mine.folder.exists()
    mine.discard()
    assert len(names(store)) == 1


def test_models_are_removed_by_name(store: PromptCacheStore) -> None:
    save(store, "m"), save(store, "m", OTHER)
    kept = save(store, "n")
    store.remove_model("m")
    assert names(store) == [kept.folder.name]
    PromptCacheStore(str(store.root / "nothing"), 5).remove_model("m")
    PromptCacheStore(str(store.root / "nothing"), 5).tidy()


def test_links_lead_to_the_files_and_go_away(tmp_path: Path) -> None:
    engine, files = tmp_path / "engine", tmp_path / "files"
    engine.mkdir()
    files.mkdir()
    links = CacheLinks(engine, files, [0, 3])
    (engine / links.name(3)).write_bytes(b"three")
    assert (files / "slot-3").read_bytes() == b"three"
    assert all(name.startswith(".") for name in file_names(engine)), "no name that a client may send"
    (engine / "of-a-client").write_bytes(b"kept")
    remove_leftovers(engine)
    assert links.name(0) not in file_names(engine), "it led nowhere"
    assert (engine / links.name(3)).exists()
    links.remove()
    assert file_names(engine) == ["of-a-client"]
    with pytest.raises(OSError, match="missing"):
        CacheLinks(tmp_path / "missing", files, [0])
    remove_leftovers(tmp_path / "missing")
