"""The file of API keys as a process follows it: the present keys or, while the file cannot be read, the last ones."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final, NamedTuple

from protocol.config.api_keys import ApiKey, key_file, read_keys, write_keys
from protocol.config.settings import Settings
from protocol.wire.endpoints import keys_copy

_DELETED: Final = (
    "it was deleted, so that its keys are not valid any more;"
    " `lemonbus keys add NAME --scope admin --state-dir DIR` makes another one, and a server that is started again does without the file"
)
_MAX_READS: Final = 3


class _FileVersion(NamedTuple):
    """Differs between a file and the one that replaced it."""

    inode: int
    size: int
    modified: int


_UNREAD: Final = _FileVersion(0, 0, 0)
"""The version of a file that does not exist."""


class KeyFile:
    """Reads the file again as soon as it has changed.

    A server that had the file is never opened to callers without a key. If the file is deleted, no key is valid any
    more; if it cannot be read, the keys that were read last stay valid.
    """

    def __init__(self, settings: Settings) -> None:
        """Nothing is read yet."""
        self.path = key_file(settings)
        self._copy = keys_copy(Path(settings.runtime_dir))
        self.keys: list[ApiKey] = []
        self.exists = False
        """Whether this server has had the file, which means that callers need a key."""
        self.problem = ""
        """Why the file cannot be used at present, in words; empty if it can."""
        self._version: _FileVersion | None = None
        # As bytes: every request looks at them, and a path would be converted to bytes each time.
        self._path_bytes, self._copy_bytes = os.fsencode(self.path), os.fsencode(self._copy)

    def refresh(self) -> bool:
        """Look at the file; return whether something has changed."""
        # A failing stat raises, which costs ten times as much as asking first. Most servers have no file.
        if not self.exists and not os.access(self._path_bytes, os.F_OK) and not os.access(self._copy_bytes, os.F_OK):
            return False
        changed = False
        # Once more after a copy was made: another process may have copied a newer file meanwhile.
        for _ in range(_MAX_READS):
            version = self._present_version()
            if self.exists and version == self._version:
                break
            self._version, self.exists, changed = version, True, True
            if not self._read() and version is not None and version.inode:
                self._version = _UNREAD
                break
        return changed

    def _present_version(self) -> _FileVersion | None:
        """Return the version of the file: None if there is none, the error if it cannot be looked at."""
        try:
            facts = os.stat(self._path_bytes)  # noqa: PTH116 - a third of the time of Path.stat, in every request
        except FileNotFoundError:
            return None
        except OSError as problem:
            return _FileVersion(0, 0, -(problem.errno or 1))
        return _FileVersion(facts.st_ino, facts.st_size, facts.st_mtime_ns)

    def _read(self) -> bool:
        """Read the file.

        False: the machine could not read it now, so it must be read again even if it does not change.
        """
        try:
            self.keys, self.problem = read_keys(self.path), ""
        except FileNotFoundError:
            self.keys, self.problem = [], _DELETED
        except (OSError, ValueError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else None
            self.problem = reason or str(problem).removeprefix(f"{self.path.name}: ")
            with contextlib.suppress(OSError, ValueError):
                self.keys = read_keys(self._copy)
            return not isinstance(problem, OSError)
        with contextlib.suppress(OSError):
            if not self._is_copied():
                write_keys(self._copy, self.keys)
        return True

    def _is_copied(self) -> bool:
        try:
            return read_keys(self._copy) == self.keys
        except (FileNotFoundError, ValueError):
            return False
