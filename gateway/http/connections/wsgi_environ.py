"""The WSGI environment: its common parts for all requests of a process or a connection, and the keys of headers.

Three layers, each a copy of the one before with more keys: :func:`process_environ`, :func:`connection_environ`, and the
request's own, made by :func:`gateway.http.connections.request_parser.parse_request`.

Invariants:

* No header overwrites a key that the server sets: each gets ``HTTP_``, except for ``CONTENT_TYPE`` and
  ``CONTENT_LENGTH``.
* Two names that differ in more than case never share a key, so a client cannot pass one header off as another.
* Clients cannot make :data:`KNOWN_HEADERS` grow without end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from gateway.http.request_context import SOCKET_KEY
from protocol.runtime import logs

MAX_KNOWN_HEADERS: Final = 512

KNOWN_HEADERS: Final[dict[bytes, str]] = {}
"""Header names as clients write them → the result of :func:`header_key`.

The parser looks here first, without a call.
"""


class _ErrorLog:
    """``wsgi.errors``: each text that the framework writes there is one line of the log."""

    def write(self, text: str) -> None:
        logs.get_logger().error("application error", text=text)

    def writelines(self, lines: Iterable[str]) -> None:
        self.write("".join(lines))

    def flush(self) -> None:
        """Do nothing: there is no buffer."""


def process_environ(listener: Any, processes: int) -> dict[str, Any]:
    """Return the common part of the environments of a process's requests.

    ``listener``: the address of the listener. ``processes``: how many share it.
    """
    return {
        "wsgi.version": (1, 0),
        "wsgi.errors": _ErrorLog(),
        "wsgi.url_scheme": "http",
        "wsgi.multithread": True,
        "wsgi.multiprocess": processes > 1,
        "wsgi.run_once": False,
        "wsgi.input_terminated": True,
        "SERVER_SOFTWARE": "lemonbus",
        "SERVER_NAME": listener[0] if isinstance(listener, tuple) else str(listener),
        "SERVER_PORT": str(listener[1]) if isinstance(listener, tuple) else "",
        "SCRIPT_NAME": "",
    }


def connection_environ(base: dict[str, Any], sock: Any, address: Any) -> dict[str, Any]:
    """Return the common part of the environments of a connection's requests. ``address``: the client's."""
    known = isinstance(address, tuple)
    return base | {
        SOCKET_KEY: sock,
        "REMOTE_ADDR": address[0] if known else str(address),
        "REMOTE_PORT": str(address[1]) if known else "",
    }


def header_key(name: bytes) -> str:
    """Return the environment's key for a header, empty if it is left out. Remembers the first names."""
    lower = name.lower()
    # An underscore would be mistaken for a dash, and HTTP_PROXY for the variable that names a proxy.
    key = "" if b"_" in lower or lower == b"proxy" else lower.decode("ascii").upper().replace("-", "_")
    if key and key not in ("CONTENT_TYPE", "CONTENT_LENGTH"):
        key = "HTTP_" + key
    if len(KNOWN_HEADERS) < MAX_KNOWN_HEADERS:
        KNOWN_HEADERS[name] = key
    return key
