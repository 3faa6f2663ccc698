"""The sockets of a server: one private runtime directory, one lock, names with the boot id.

A second bind to an ipc path succeeds and steals it, and socket files are world-readable (both measured). So the
directory is 0700, a lock guards it, and every socket but ``bus`` has the boot id in its name.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Final, Self

from protocol import file_lock
from protocol.failures import Code, Failure

MAX_SOCKET_PATH: Final = 107
_LOCK: Final = "lock"
_SOCKET_NAME: Final = re.compile(r"bus|[lw]-[0-9a-f]+(-.*)?")
"""The names of the sockets below."""
_MAX_NAME: Final = len("w-") + 12 + len("-w00000000")


def bus(runtime: Path) -> str:
    """Return the endpoint of the supervisor's ROUTER. Its name does not change, because peers reconnect to it."""
    return f"ipc://{runtime}/bus"


def logs(runtime: Path, boot: str) -> str:
    """Return the endpoint of the supervisor's PULL for log records."""
    return f"ipc://{runtime}/l-{boot}"


def events(runtime: Path, boot: str, worker: str) -> str:
    """Return the endpoint of one worker's XPUB."""
    return f"ipc://{runtime}/w-{boot}-{worker}"


def socket_file(endpoint: str) -> Path:
    """Return the file of an endpoint's socket."""
    return Path(endpoint.removeprefix("ipc://"))


def lock_file(runtime: Path) -> Path:
    """Return the file that is locked while a server uses the directory. It contains the pid of the server's keeper."""
    return runtime / _LOCK


def spool(runtime: Path) -> Path:
    """Return the directory of request bodies that are too large for the bus."""
    return runtime / "spool"


def keys_copy(runtime: Path) -> Path:
    """Return the copy of the API keys that were read last. It exists if this server has had a file of keys."""
    return runtime / "keys-read-last.json"


class RuntimeDirectory:
    """The locked runtime directory. The keeper holds it for successive supervisors."""

    def __init__(self, path: Path, pid: int = 0) -> None:
        """Create (0700), check and lock ``path``; remove what an earlier run left there.

        ``pid``: the pid to write into the lock file, by default that of the present process.

        Raises a ``conflict`` failure naming the holder's pid if another server uses it. Raises ``invalid_request`` if
        the path is too long for a socket, belongs to another user, or is not a runtime directory.
        """
        self.path = path
        longest = len(str(path).encode()) + 1 + _MAX_NAME
        if longest > MAX_SOCKET_PATH:
            raise Failure(
                Code.INVALID_REQUEST,
                f"runtime directory {path} is too long for a socket name by "
                f"{longest - MAX_SOCKET_PATH} bytes; choose a shorter --runtime-dir",
                param="runtime_dir",
            ).raised()
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = path.stat()
        if facts.st_uid != os.geteuid():
            raise Failure(
                Code.INVALID_REQUEST,
                f"runtime directory {path} belongs to another user (uid {facts.st_uid})",
                param="runtime_dir",
            ).raised()
        if not (path / _LOCK).is_file() and any(path.iterdir()):
            # Changing its mode or removing files from it would break another program that keeps files there.
            raise Failure(
                Code.INVALID_REQUEST,
                f"runtime directory {path} holds other files; choose one that is empty, or does not exist yet",
                param="runtime_dir",
            ).raised()
        if stat.S_IMODE(facts.st_mode) != 0o700:
            path.chmod(0o700)
        try:
            self._lock = file_lock.lock(path / _LOCK, pid)
        except file_lock.HeldError as held:
            raise Failure(
                Code.CONFLICT,
                f"another lemonbus (pid {held.holder}) already serves from {path}; stop it, or choose another --runtime-dir",
            ).raised() from None
        self._sweep()
        spool(path).mkdir(mode=0o700, exist_ok=True)

    @classmethod
    def taken_over(cls, path: Path, lock_fd: int) -> Self:
        """Return a directory that an earlier supervisor of the same server locked. Nothing in it is changed."""
        directory = cls.__new__(cls)
        directory.path, directory._lock = path, lock_fd  # noqa: SLF001 - ours
        return directory

    @property
    def lock_fd(self) -> int:
        """The descriptor of the lock, which lasts as long as any process has it open."""
        return self._lock

    def is_ours(self) -> bool:
        """Return whether the lock file in the directory is still the one that was locked."""
        try:
            return os.path.samestat(os.fstat(self._lock), (self.path / _LOCK).stat())
        except OSError:
            return False

    def _sweep(self) -> None:
        for left in self.path.iterdir():
            if _SOCKET_NAME.fullmatch(left.name) and left.is_socket():
                left.unlink(missing_ok=True)
        keys_copy(self.path).unlink(missing_ok=True)
        if spool(self.path).is_dir():
            for left in spool(self.path).iterdir():
                left.unlink(missing_ok=True)

    def release(self) -> None:
        """Remove the sockets and release the lock. A directory that is no longer ours is left alone."""
        if self.is_ours():
            self._sweep()
        os.close(self._lock)
