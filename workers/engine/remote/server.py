"""One server that runs a model elsewhere, and the connections to it."""

from __future__ import annotations

import math

from protocol.config.server_address import ServerAddress
from protocol.runtime.loop import Loop
from workers.engine.connections.connection_pool import EngineConnectionPool
from workers.engine.connections.engine_socket import EngineSocket, begin_connection
from workers.engine.connections.tls_socket import TlsSocket
from workers.engine.remote.addresses import Found, find_address, is_literal
from workers.stream.read_batching import ReadBatcher


class RemoteServer(EngineConnectionPool):
    """One server, and the connections to it."""

    keeps_streams = True

    def __init__(self, loop: Loop, address: ServerAddress, max_kept: int, key: str, read_batcher: ReadBatcher) -> None:
        """Connect when there is something to send."""
        super().__init__(loop, address.port, max_kept, key)
        self.address = address
        bearer = f"Authorization: Bearer {key}\r\n" if key else ""
        # Without this header, HTTP lets a server compress its answer.
        self.head = f"Host: {address.url.partition('://')[2]}\r\nAccept-Encoding: identity\r\n{bearer}"
        self.read_batcher = read_batcher
        self.found: Found | None = find_address(address.host, address.port) if is_literal(address.host) else None
        self.found_at: float | None = None
        self.running = 0
        """Requests that it works on for this worker."""
        self.down_for = 0.0
        """Seconds until its next health request; 0: it is up."""
        self.failed_at = -math.inf

    def open_socket(self) -> tuple[EngineSocket, int]:
        """See :class:`~workers.engine.connections.connection.ConnectionOwner`."""
        if self.found is None:
            raise OSError("its name was not found")
        opened, error = begin_connection(*self.found)
        return (TlsSocket(opened, self.address.host) if self.address.tls else opened), error

    def path_of(self, path: str) -> str:
        """Return the path with that of the server before it."""
        return self.address.path_of(path)

    def connect_ahead(self) -> None:
        """Do nothing: a server elsewhere need not hold a connection for a request that may not come."""
