"""The channel between keeper and supervisor, and between keeper and fork server: words, with descriptors.

A socket pair of type SOCK_SEQPACKET: messages keep their boundaries, and the end of one process ends the channel. A
message is a word and its arguments, as text; at most one descriptor travels with it.
"""

from __future__ import annotations

import array
import contextlib
import os
import socket

VARIABLE = "LEMONBUS_KEEPER_FD"
"""The environment variable with the number of the fork server's descriptor of its channel."""
MAX_BYTES = 4096
"""Size limit of a message; the rest is cut off."""

# Fork server → keeper
PREPARED = "prepared"
"""All modules are imported."""

CLOSED = "closed"
"""``closed N``: the supervisor has closed channel N of those that the fork server was given, or that channel did not arrive."""

# Keeper → fork server
START = "start"
"""Start a supervisor; the descriptor is the supervisor's end of a new channel."""

SERVE = "serve"
"""``serve N``: take the present supervisor's orders to fork workers and jobs; the descriptor is the fork server's end of channel N."""

# Supervisor → keeper
STARTED = "started"
"""``started PID``: the first word."""
HOLD = "hold"
"""``hold NAME``: keep this descriptor for the next supervisor, replacing an earlier one with this name."""
READY = "ready"
"""``ready TEXT``: the server answers clients; the text is for the service manager's status."""
ALIVE = "alive"
"""The loop is running; sent once a second."""
LEAVING = "leaving"
"""``leaving CODE``: this supervisor, and with it the server, ends in an orderly way with this exit code."""
HANDED_OVER = "handed over"
"""This supervisor ends for its successor."""
LAST_WORDS = "last words"
"""``last words TEXT``: an exception ends this supervisor."""
RELOADED = "reloaded"
"""``reloaded N``: N orders to reload were carried out, whether they changed something or not."""
UPGRADE = "upgrade"
"""A client asks for an upgrade."""

# Keeper → supervisor
HELD = "held"
"""``held NAME``: a descriptor that an earlier supervisor gave, or :data:`FORK_SERVER`, which may come at any time."""
BEGIN = "begin"
"""``begin N WHY``: all descriptors were sent; N supervisors were started before this one; the reason why the last one ended."""
END = "end"
"""Begin the orderly shutdown; a second one ends the server at once."""
RELOAD = "reload"
"""Read the configuration again."""
HAND_OVER = "hand over"
"""End without ending anything else: a successor is ready."""
EXITED = "exited"
"""``exited PID STATUS``: a process that an earlier supervisor started has ended; STATUS as in ``subprocess``."""
UPGRADE_BEGUN = "upgrade begun"
"""A fork server of the installed release is starting."""
UPGRADE_REFUSED = "upgrade refused"
"""``upgrade refused WHY``: no upgrade has begun, because another one is not complete yet."""
UPGRADE_FAILED = "upgrade failed"
"""``upgrade failed TEXT``: the new version could not start, and everything goes on."""

# The descriptors that the keeper holds
LOCK = "lock"
STATE_LOCK = "state lock"
"""The lock of the state directory."""
LISTENER = "listener"
RESPONSES = "responses"
"""The journal of the stored responses: unnamed memory."""
COUNTS = "counts"
"""The journal of what was counted: unnamed memory."""
PRELOADED = "preloaded"
"""An empty file: holding it means that the models for the start were loaded."""
SERVER_RECORD = "server record"
"""What one supervisor leaves to the next one (`supervisor/persistence/server_record.py`): unnamed memory."""
FORK_SERVER = "fork server"
"""Not held, but made for each supervisor: its end of a channel to the present fork server."""


class ClosedError(Exception):
    """The other process has ended."""


class Channel:
    """One end of a channel. It does not block unless told to wait."""

    def __init__(self, end: socket.socket) -> None:
        """Take the end over."""
        end.setblocking(False)
        self._end = end

    @classmethod
    def of_descriptor(cls, descriptor: int) -> Channel:
        """Return the channel that was inherited as this descriptor. Started processes do not inherit it."""
        os.set_inheritable(descriptor, False)
        return cls(socket.socket(fileno=descriptor))

    def fileno(self) -> int:
        """Return the descriptor, to wait on."""
        return self._end.fileno()

    @property
    def is_open(self) -> bool:
        """Whether it was not closed at this end."""
        return self._end.fileno() >= 0

    def close(self) -> None:
        """Close it; idempotent. Nothing can be sent any more, and reading raises :class:`ClosedError`."""
        self._end.close()

    def refuse(self) -> None:
        """Accept no more words: the other end can send none from now on. What it sent before can still be read."""
        with contextlib.suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)

    def send(self, word: str, arguments: str = "", descriptor: int = -1, timeout: float = 0.0) -> bool:
        """Send; return False if the other end is gone, or has not read for so long that no more messages fit.

        ``timeout``: seconds to wait until the message fits.
        """
        if not self.is_open:
            return False
        message = f"{word}\n{arguments}".encode()[:MAX_BYTES]
        attached = [] if descriptor < 0 else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))]
        self._end.settimeout(timeout)
        try:
            self._end.sendmsg([message], attached, socket.MSG_NOSIGNAL)
        except OSError:
            return False
        finally:
            self._end.setblocking(False)
        return True

    def receive(self, timeout: float | None = 0.0) -> tuple[str, str, int] | None:
        """Return the next word, its arguments and its descriptor (-1: none); None if there is none within ``timeout``.

        Without a timeout, it waits for the next word.

        Raises :class:`ClosedError` when the other process has ended and everything was read.
        """
        if not self.is_open:
            raise ClosedError
        self._end.settimeout(timeout)
        try:
            try:
                message, attached, _, _ = self._end.recvmsg(MAX_BYTES, socket.CMSG_SPACE(4))
            except ConnectionResetError:  # it was closed too early; what it sent can be read
                message, attached, _, _ = self._end.recvmsg(MAX_BYTES, socket.CMSG_SPACE(4))
        except (BlockingIOError, TimeoutError):
            return None
        except ConnectionError:
            message, attached = b"", []
        finally:
            self._end.setblocking(False)
        if not message:
            raise ClosedError
        word, _, arguments = message.decode("utf-8", "replace").partition("\n")
        return word, arguments, _descriptor(attached)


def pair() -> tuple[Channel, socket.socket]:
    """Return our end of a new channel, and the other end, to be given to another process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return Channel(ours), theirs


def _descriptor(attached: list[tuple[int, int, bytes]]) -> int:
    descriptors = array.array("i")
    for _, kind, content in attached:
        if kind == socket.SCM_RIGHTS:
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.set_inheritable(descriptor, False)
    return descriptors[0] if descriptors else -1
