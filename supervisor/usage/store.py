"""The SQLite file of usage in the state directory. Each method may wait for the disk; only one may run at a time.

* A batch and its number are written in one transaction, so a batch that is given again changes nothing.
* Several servers may write the same file: their figures add up.
* A damaged file, or one that is not a database, is moved aside, and a new one is begun.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from protocol.config.api_keys import model_allowed
from protocol.messages.usage import UsageFilter, UsageRow
from supervisor.persistence.state_files import file_version, move_broken_file
from supervisor.usage.usage_counts import Batch

R = TypeVar("R")
FILE: Final = "usage.sqlite3"
VERSION: Final = 1
"""Version of the tables, in the file's ``user_version``."""
MAX_ROWS: Final = 50_000
"""Rows of one answer."""
_BUSY_S: Final = 5.0
"""How long to wait for another process that writes."""
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS usage (
    day TEXT NOT NULL, api_key TEXT NOT NULL, model TEXT NOT NULL,
    requests INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL, engine_seconds REAL NOT NULL,
    PRIMARY KEY (day, api_key, model)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS failures (
    day TEXT NOT NULL, api_key TEXT NOT NULL, model TEXT NOT NULL, code TEXT NOT NULL, requests INTEGER NOT NULL,
    PRIMARY KEY (day, api_key, model, code)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS batches (server TEXT PRIMARY KEY, number INTEGER NOT NULL, day TEXT NOT NULL) WITHOUT ROWID;
"""
_ADD_USAGE: Final = """
INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    requests = requests + excluded.requests, prompt_tokens = prompt_tokens + excluded.prompt_tokens,
    cached_tokens = cached_tokens + excluded.cached_tokens, output_tokens = output_tokens + excluded.output_tokens,
    engine_seconds = engine_seconds + excluded.engine_seconds
"""
_ADD_FAILURES: Final = """
INSERT INTO failures VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET requests = requests + excluded.requests
"""
_SELECT: Final = """
SELECT day, api_key, model, requests, prompt_tokens, cached_tokens, output_tokens, engine_seconds FROM usage
WHERE day BETWEEN ? AND ? AND (? IS NULL OR api_key = ?) AND (? = '' OR model = ?)
ORDER BY day, api_key, model LIMIT ?
"""
_SELECT_FAILURES: Final = """
SELECT day, api_key, model, code, requests FROM failures
WHERE day BETWEEN ? AND ? AND (? IS NULL OR api_key = ?) AND (? = '' OR model = ?)
"""
_SELECT_SUMS: Final = """
SELECT '', api_key, model, SUM(requests), SUM(prompt_tokens), SUM(cached_tokens), SUM(output_tokens), SUM(engine_seconds) FROM usage
WHERE day BETWEEN ? AND ? AND (? IS NULL OR api_key = ?) AND (? = '' OR model = ?)
GROUP BY api_key, model ORDER BY api_key, model LIMIT ?
"""
_SELECT_SUMS_OF_FAILURES: Final = """
SELECT '', api_key, model, code, SUM(requests) FROM failures
WHERE day BETWEEN ? AND ? AND (? IS NULL OR api_key = ?) AND (? = '' OR model = ?) GROUP BY api_key, model, code
"""


class StoreError(Exception):
    """The store cannot be used now; says why."""


class TooManyRowsError(Exception):
    """A filter matches more than :data:`MAX_ROWS` rows."""


class UsageStore:
    """Opens its file when it is first used, and again after anything has gone wrong."""

    def __init__(self, path: Path, retention_days: int) -> None:
        """``retention_days``: how long a day's usage is kept; 0: forever."""
        self._path, self._retention_days = path, retention_days
        self._database: sqlite3.Connection | None = None
        self._file = 0
        """The file's inode."""
        self._expired_on = ""
        """The day on which old rows were deleted last."""
        self.moved = ""
        """What became of a damaged file; empty: none was damaged."""

    def write(self, batch: Batch, today: str) -> None:
        """Add a batch, unless it was added before; raises ``StoreError``, in which case nothing was added."""

        def add(database: sqlite3.Connection) -> None:
            with database:
                database.execute("BEGIN IMMEDIATE")
                known = database.execute("SELECT number FROM batches WHERE server = ?", [batch.server]).fetchone()
                if known is not None and known[0] >= batch.number:
                    return
                self._expire(database, today)
                rows = [msgspec.structs.astuple(row) for row in batch.rows]
                database.executemany(_ADD_USAGE, [row[:8] for row in rows])
                failures = [(*row[:3], code, count) for row in rows for code, count in row[8].items()]
                database.executemany(_ADD_FAILURES, failures)
                values = (batch.server, batch.number, today)
                database.execute("INSERT OR REPLACE INTO batches VALUES (?, ?, ?)", values)

        self._use(add)

    def read(self, wanted: UsageFilter) -> list[UsageRow]:
        """Return the rows of a filter; raises ``StoreError`` and ``TooManyRowsError``."""
        first, last = wanted.first_day, wanted.last_day or "9999-12-31"
        values = [first, last, wanted.api_key, wanted.api_key, wanted.model, wanted.model]
        of_usage = _SELECT if wanted.by_day else _SELECT_SUMS
        of_failures = _SELECT_FAILURES if wanted.by_day else _SELECT_SUMS_OF_FAILURES

        def select(database: sqlite3.Connection) -> list[UsageRow]:
            with database:
                database.execute("BEGIN")  # both tables as they are at one moment
                rows = database.execute(of_usage, [*values, MAX_ROWS + 1]).fetchall()
                if len(rows) > MAX_ROWS:
                    raise TooManyRowsError
                failures: dict[tuple[str, str, str], dict[str, int]] = {}
                for day, key, model, code, count in database.execute(of_failures, values):
                    failures.setdefault((day, key, model), {})[code] = count
            found = [UsageRow(*row) for row in rows]
            return [msgspec.structs.replace(row, failures=failures.get(row.names, {})) for row in found]

        return [row for row in self._use(select) if model_allowed(wanted.models, row.model)]

    def spent(self, today: str) -> list[tuple[str, int, int]]:
        """Return each API key, and the tokens that it has used today and in this month; raises ``StoreError``."""
        query = """
            SELECT api_key, SUM((prompt_tokens + output_tokens) * (day = ?)), SUM(prompt_tokens + output_tokens)
            FROM usage WHERE day BETWEEN ? AND ? AND api_key != '' GROUP BY api_key
        """
        if not self._path.exists():
            return []  # the start of a server does not wait until there is one
        values = [today, f"{today[:7]}-01", f"{today[:7]}-31"]
        return self._use(lambda database: database.execute(query, values).fetchall())

    def close(self) -> None:
        """Close the file. The next use opens it again."""
        database, self._database = self._database, None
        if database is not None:
            database.close()

    def _expire(self, database: sqlite3.Connection, today: str) -> None:
        """Once a day, delete what is too old. This month stays, because the budgets of keys count it."""
        if not self._retention_days or self._expired_on == today:
            return
        oldest = (date.fromisoformat(today) - timedelta(self._retention_days)).isoformat()
        for table in ("usage", "failures", "batches"):
            database.execute(f"DELETE FROM {table} WHERE day < ?", [min(oldest, f"{today[:7]}-01")])  # noqa: S608 - our own names
        self._expired_on = today

    def _use(self, work: Callable[[sqlite3.Connection], R]) -> R:
        """Return what ``work`` returns; with a damaged file, move it aside and begin a new one."""
        try:
            return self._try(work)
        except sqlite3.DatabaseError as problem:
            if not _is_damaged(problem):
                raise StoreError(str(problem)) from problem
        self.moved = f"{FILE} is damaged, and was {self._move_aside()}"
        try:
            return self._try(work)
        except sqlite3.DatabaseError as problem:
            raise StoreError(str(problem)) from problem

    def _try(self, work: Callable[[sqlite3.Connection], R]) -> R:
        try:
            if self._database is not None and self._inode() != self._file:
                self.close()  # the file was removed or replaced
            return work(self._database or self._open())
        except OSError as problem:
            self.close()
            raise StoreError(str(problem)) from problem
        except sqlite3.DatabaseError:
            self.close()
            raise

    def _open(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        os.close(
            os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        )  # SQLite would make it readable for all
        self._file = self._inode()
        # Several threads may use it, but one after the other.
        database = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            version = _checked_version(database)
            database.execute("PRAGMA journal_mode = WAL")
            database.execute(
                "PRAGMA synchronous = FULL"
            )  # one wait for the disk for each batch: a power cut loses a second
            if version < VERSION:
                database.executescript(f"BEGIN IMMEDIATE;{_TABLES}PRAGMA user_version = {VERSION};COMMIT;")
        except BaseException:
            database.close()
            raise
        self._database = database
        return database

    def _inode(self) -> int:
        """Return the number of the file, 0 if there is none."""
        return version.inode if (version := file_version(self._path)) else 0

    def _move_aside(self) -> str:
        moved = move_broken_file(self._path)
        for suffix in ("-wal", "-shm"):
            other = self._path.with_name(self._path.name + suffix)
            if other.exists():
                move_broken_file(other)
        return moved


def _checked_version(database: sqlite3.Connection) -> int:
    """Return the version of the tables; raises ``StoreError``, or ``DatabaseError`` if the file is damaged."""
    (result,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if result != "ok":
        problem = sqlite3.DatabaseError("the check of the file failed")
        problem.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise problem
    version: int = database.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise StoreError(f"{FILE} was written by a newer release")
    return version


def _is_damaged(problem: sqlite3.DatabaseError) -> bool:
    """Return whether the file is damaged. Extended codes have the kind of the error in their lowest byte."""
    return getattr(problem, "sqlite_errorcode", 0) & 0xFF in _DAMAGED
