"""A non-blocking socket whose bytes are encrypted. It connects, checks the certificate, and then sends and receives.

All of it is driven by :meth:`TlsSocket.send` and :meth:`TlsSocket.recv_into`: they raise ``BlockingIOError`` until there is
something to do. A certificate that is not accepted, and a connection that ends without a notice, are an ``OSError``.
"""

from __future__ import annotations

import errno
import socket
import ssl
from functools import cache


@cache
def client_context() -> ssl.SSLContext:
    """Return how certificates are checked: by the authorities of the system, or of ``SSL_CERT_FILE`` and ``SSL_CERT_DIR``."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


class TlsSocket:
    """Wraps a socket that is about to connect."""

    def __init__(self, plain: socket.socket, host: str) -> None:
        """``host``: the name that the certificate must have."""
        self._plain, self._host = plain, host
        self._encrypted: ssl.SSLSocket | None = None
        self._ready = False
        self.waits_for_peer = False
        """Whether nothing can be sent before something has come."""

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._socket.fileno()

    @property
    def _socket(self) -> socket.socket:
        return self._encrypted or self._plain

    @property
    def pending(self) -> bool:
        """Whether there are bytes that have been read already, of which the kernel knows nothing."""
        return self._encrypted is not None and self._encrypted.pending() > 0

    def _handshake(self) -> ssl.SSLSocket:
        if self._encrypted is None:
            if error := self._plain.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(error, "the connection was refused")
            try:
                self._plain.getpeername()
            except OSError:
                raise BlockingIOError from None  # it is not connected yet
            self._encrypted = client_context().wrap_socket(
                self._plain,
                server_hostname=self._host,
                do_handshake_on_connect=False,
                suppress_ragged_eofs=False,
            )
        if not self._ready:
            self._encrypted.do_handshake()
            self._ready, self.waits_for_peer = True, False
        return self._encrypted

    def send(self, data: memoryview) -> int:
        """Send what the other side takes now; return how much that is."""
        try:
            return self._handshake().send(data)
        except ssl.SSLWantReadError:
            self.waits_for_peer = True
            raise BlockingIOError from None
        except ssl.SSLWantWriteError:
            raise BlockingIOError from None

    def recv_into(self, buffer: memoryview) -> int:
        """Read what has come; return how much that is, 0 at the end."""
        try:
            return self._handshake().recv_into(buffer)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        except ssl.SSLZeroReturnError:
            return 0

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """Set an option of the socket."""
        self._socket.setsockopt(level, option, value)

    def getpeername(self) -> object:
        """Return the other side; raises OSError while there is no encrypted connection."""
        if not self._ready:
            raise OSError(errno.ENOTCONN, "the encryption has not begun")
        return self._socket.getpeername()

    def close(self) -> None:
        """Close it, without a word to the other side."""
        self._socket.close()
