"""The address of another server's API, as a section of the configuration gives it. Pure."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit


class ServerAddress(NamedTuple):
    """Where another server answers. ``path``: what stands before ``/chat/completions`` and the like, such as ``/v1``."""

    host: str
    port: int
    tls: bool
    path: str

    @property
    def url(self) -> str:
        """The address without its path, for people and for the header ``Host``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = 443 if self.tls else 80
        return f"http{'s' if self.tls else ''}://{host}{'' if self.port == usual else f':{self.port}'}"

    def path_of(self, path: str) -> str:
        """Return the path of a request there. ``path``: begins with ``/v1/`` if it is one of OpenAI's API."""
        return self.path + path.removeprefix("/v1") if path.startswith("/v1/") else path


def parse_address(url: str) -> ServerAddress:
    """Return what an address means; raises ValueError for one that names no host, has more than a path, or a port that cannot be."""
    found = urlsplit(url)
    if found.scheme not in ("http", "https") or not found.hostname:
        raise ValueError("it is not an http or https address")
    if found.username is not None or found.query or found.fragment:
        raise ValueError("it has more than a host, a port and a path")
    if found.port == 0:
        raise ValueError("its port is 0")
    tls = found.scheme == "https"
    return ServerAddress(found.hostname, found.port or (443 if tls else 80), tls, found.path.rstrip("/"))
