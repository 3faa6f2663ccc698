"""The port of an engine: reserved before the engine starts, and checked so that no other user's program gets requests."""

from __future__ import annotations

import os
import socket

from protocol.runtime.listeners import listening_users


class ReservedPort:
    """A port of this machine that the system gives to no other program while it is reserved."""

    def __init__(self, *, shared: bool, user: int | None = None) -> None:
        """Reserve a free one; raises OSError.

        ``shared``: the engine sets ``SO_REUSEPORT``, so only programs of this user can also bind the port. Other
        engines need ``SO_REUSEADDR``, with which any user could: :meth:`is_listening` detects that.
        ``user``: the one that the engine runs as, if not this process's.
        """
        self._shared = shared
        # What root runs (a container's port is often root's) is trusted: root could read everything anyway.
        self._users = {os.geteuid(), 0, *(() if user is None else (user,))}
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        # Bound before the options are set; otherwise it could be a port that others share.
        self._socket.bind(("127.0.0.1", 0))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if not shared:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.number: int = self._socket.getsockname()[1]

    def is_listening(self) -> bool:
        """Return whether the engine may be listening already; raises ``PermissionError`` if another user's program is."""
        if self._shared:
            return True
        users = listening_users(self.number)
        if strangers := users - self._users:
            raise PermissionError(f"a program of user {min(strangers)} listens on its port {self.number}")
        return bool(users)

    def release(self) -> None:
        """Give it back."""
        self._socket.close()
