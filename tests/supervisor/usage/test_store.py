"""The file of usage: it adds up, survives everything that can happen to a file, and is for its owner alone."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from protocol.messages.usage import UsageFilter, UsageRow
from supervisor.usage import store as store_module
from supervisor.usage.store import FILE, VERSION, StoreError, TooManyRowsError, UsageStore
from supervisor.usage.usage_counts import Batch

TODAY = "2031-05-17"
ROW = UsageRow(TODAY, "ci", "m", 2, 10, 3, 5, 1.5, {"cancelled": 1})
ALL = UsageFilter()


@pytest.fixture
def store(tmp_path: Path) -> UsageStore:
    return UsageStore(tmp_path / FILE, 400)


def named(day: str = TODAY, key: str = "ci", model: str = "m") -> UsageRow:
    return msgspec.structs.replace(ROW, day=day, api_key=key, model=model)


def test_batches_add_up_and_one_that_comes_again_changes_nothing(store: UsageStore) -> None:
    store.write(Batch("s", 1, [ROW, named(key="")]), TODAY)
    store.write(Batch("s", 1, [ROW, named(key="")]), TODAY)
    store.write(Batch("s", 2, [ROW]), TODAY)
    assert store.read(ALL) == [named(key=""), ROW.plus(ROW)]


def test_two_servers_may_write_one_file(store: UsageStore, tmp_path: Path) -> None:
    other = UsageStore(tmp_path / FILE, 400)
    store.write(Batch("s", 1, [ROW]), TODAY)
    other.write(Batch("t", 1, [ROW]), TODAY)
    store.write(Batch("s", 2, [ROW]), TODAY)
    assert other.read(ALL) == store.read(ALL) == [ROW.plus(ROW).plus(ROW)]


def test_a_filter_selects_by_day_key_and_model(store: UsageStore) -> None:
    rows = [
        named(day, key, model) for day in ("2031-05-01", "2031-05-02") for key in ("", "ci") for model in ("m", "n")
    ]
    store.write(Batch("s", 1, rows), TODAY)
    assert store.read(ALL) == rows
    assert store.read(UsageFilter("2031-05-02")) == rows[4:]
    assert store.read(UsageFilter("", "2031-05-01")) == rows[:4]
    assert store.read(UsageFilter(api_key="")) == [rows[0], rows[1], rows[4], rows[5]]
    assert store.read(UsageFilter(model="n")) == rows[1::2]
    assert store.read(UsageFilter(models=["n*"])) == rows[1::2]


def test_the_tokens_of_today_and_of_this_month(store: UsageStore) -> None:
    rows = [named(TODAY), named(TODAY, model="n"), named("2031-05-01"), named("2031-04-30"), named(key="")]
    store.write(Batch("s", 1, [*rows, named("2031-05-02", key="other")]), TODAY)
    assert sorted(store.spent(TODAY)) == [("ci", 30, 45), ("other", 0, 15)]


def test_old_days_are_deleted_but_never_this_month(tmp_path: Path) -> None:
    store = UsageStore(tmp_path / FILE, 1)
    days = ["2031-04-29", "2031-05-01", "2031-05-16"]
    store.write(Batch("s", 1, [named(day) for day in days]), "2031-04-29")
    store.write(Batch("s", 2, [ROW]), TODAY)
    assert [row.day for row in store.read(ALL)] == [*days[1:], TODAY]
    store.close()
    kept = UsageStore(tmp_path / FILE, 0)
    kept.write(Batch("s", 3, [named("1999-01-01")]), TODAY)
    assert kept.read(ALL)[0].day == "1999-01-01"


def test_only_the_owner_may_read_it(store: UsageStore, tmp_path: Path) -> None:
    store.write(Batch("s", 1, [ROW]), TODAY)
    files = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert set(files) >= {FILE, f"{FILE}-wal"}
    assert set(files.values()) == {0o600}


def damage_whole(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)


def damage_pages(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [damage_whole, damage_pages])
def test_a_damaged_file_is_moved_aside(store: UsageStore, tmp_path: Path, damage: Callable[[Path], None]) -> None:
    store.write(Batch("s", 1, [ROW]), TODAY)
    store.close()
    damage(tmp_path / FILE)
    store.write(Batch("s", 2, [ROW]), TODAY)
    assert store.read(ALL) == [ROW]
    assert f"{FILE} is damaged, and was moved aside to {FILE}.broken-" in store.moved
    assert [path.name for path in tmp_path.glob(f"{FILE}.broken-*")] == [store.moved.rpartition(" ")[2]]


def test_a_file_that_was_deleted_is_begun_again(store: UsageStore, tmp_path: Path) -> None:
    store.write(Batch("s", 1, [ROW]), TODAY)
    (tmp_path / FILE).unlink()
    store.write(Batch("s", 2, [ROW]), TODAY)
    assert UsageStore(tmp_path / FILE, 400).read(ALL) == [ROW]


def test_the_file_of_a_newer_release_is_left_alone(store: UsageStore, tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / FILE)
    database.execute(f"PRAGMA user_version = {VERSION + 1}")
    database.close()
    content = (tmp_path / FILE).read_bytes()
    with pytest.raises(StoreError, match="newer release"):
        store.write(Batch("s", 1, [ROW]), TODAY)
    assert ((tmp_path / FILE).read_bytes(), store.moved) == (content, "")


def test_what_cannot_be_written_is_said_and_written_later(store: UsageStore, tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.raises(StoreError):
        store.write(Batch("s", 1, [ROW]), TODAY)
    with pytest.raises(StoreError):
        store.read(ALL)
    (tmp_path / FILE).rmdir()
    store.write(Batch("s", 1, [ROW]), TODAY)
    assert store.read(ALL) == [ROW]


def test_a_full_disk_loses_no_earlier_usage(store: UsageStore, tmp_path: Path) -> None:
    store.write(Batch("s", 1, [ROW]), TODAY)
    database = store._open()
    database.execute(f"PRAGMA max_page_count = {database.execute('PRAGMA page_count').fetchone()[0]}")
    many = [named(key=f"key-{number}") for number in range(1000)]
    with pytest.raises(StoreError, match="full"):
        store.write(Batch("s", 2, many), TODAY)
    assert store.read(ALL) == [ROW], "nothing of the batch is there"
    store.write(Batch("s", 2, many), TODAY)
    assert len(store.read(ALL)) == 1001


def test_the_sums_of_all_days_have_a_row_for_each_key_and_model(
    store: UsageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [named(day, key) for day in ("2031-05-15", "2031-05-16", TODAY) for key in ("", "ci")]
    store.write(Batch("s", 1, rows), TODAY)
    monkeypatch.setattr(store_module, "MAX_ROWS", 2)
    both = [named("", key).plus(ROW) for key in ("", "ci")]
    assert store.read(UsageFilter("2031-05-16", by_day=False)) == both
    assert store.read(UsageFilter("2031-05-16", api_key="ci", by_day=False)) == both[1:]
    store.write(Batch("s", 2, [named(model="n")]), TODAY)
    with pytest.raises(TooManyRowsError):
        store.read(UsageFilter(by_day=False))


def test_an_answer_has_a_bounded_number_of_rows(store: UsageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MAX_ROWS", 2)
    store.write(Batch("s", 1, [named(model=name) for name in "abc"]), TODAY)
    with pytest.raises(TooManyRowsError):
        store.read(ALL)
    assert len(store.read(UsageFilter(model="a"))) == 1
