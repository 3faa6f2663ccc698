"""Fetches one image over HTTP from a public address.

A host is resolved here, and the connection goes to a checked address: if a library resolved it a second time, it could
get another address. Each redirect is checked like the first URL. Environment variables (proxies) and ``.netrc`` have no
effect.

Imported only if ``fetch_images`` is on, and after gevent's patches, so that waiting blocks only one greenlet.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, Final, NamedTuple
from urllib.parse import urljoin

import certifi
import gevent
import urllib3
from gevent import monkey
from gevent.threadpool import ThreadPool
from urllib3.exceptions import HTTPError, LocationParseError, SSLError
from urllib3.util import Timeout, Url, parse_url

from gateway.decoding.image_header import NAMES, SIGNATURE_BYTES, image_type
from gateway.fetching.public_addresses import Network, may_fetch_from
from gateway.fetching.wire_limits import LimitedHttpPool, LimitedHttpsPool, WireLimitError
from gateway.threads import in_thread
from protocol import RELEASE

MAX_URL_LENGTH: Final = 8192
MAX_REDIRECTS: Final = 3
MAX_ADDRESSES: Final = 3
"""How many addresses of a host are tried."""
_CONNECT_TIMEOUT_S: Final = 5.0
_READ_TIMEOUT_S: Final = 10.0
_RESOLVER_THREADS: Final = 4
_PIECE: Final = 64 * 1024
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_PORTS: Final = {"http": 80, "https": 443}
_HEADERS: Final = {
    "User-Agent": f"lemonbus/{RELEASE}",
    "Accept": "image/*",
    # No compression: a limit on received bytes is then a limit on memory.
    "Accept-Encoding": "identity",
    "Connection": "close",
}

Resolve = Callable[[str, int], Sequence[str]]
"""Returns the addresses of a host; raises OSError."""


class FetchError(Exception):
    """Why an image cannot be fetched, in words for the client that named it."""


class FetchedImage(NamedTuple):
    """An image."""

    media_type: str
    data: bytes


class ImageFetcher:
    """Fetches images. There is one per process, because it has the threads that resolve names."""

    def __init__(self, networks: Sequence[Network] = (), resolve: Resolve | None = None) -> None:
        """Allow public addresses and those in ``networks``. ``resolve``: replaces the system's resolver."""
        self._networks = networks
        self._resolve = resolve or _SystemResolver()
        self._tls = ssl.create_default_context()
        self._tls.load_verify_locations(certifi.where())

    def fetch(self, url: str, limit: int, count: Callable[[int], None]) -> FetchedImage:
        """Return the image at ``url``; raises :class:`FetchError`.

        ``limit``: the most bytes it may have. ``count`` is called with the size of each piece as it arrives, and may
        raise.
        """
        for _ in range(MAX_REDIRECTS + 1):
            target = _parsed(url)
            try:
                response = self._request(target)
                with closing(response):
                    if response.status not in _REDIRECTS:
                        return _read_image(response, limit, count)
                    url = urljoin(target.url, response.headers.get("Location", ""))
            except HTTPError:
                raise FetchError("it broke off") from None
            except WireLimitError:
                raise FetchError("it sends more than an image and its headers need") from None
        raise FetchError(f"it redirects more than {MAX_REDIRECTS} times")

    def _addresses(self, host: str, port: int) -> list[str]:
        try:
            found = self._resolve(host, port)
        except (OSError, UnicodeError):
            found = []
        allowed = [address for address in dict.fromkeys(found) if may_fetch_from(address, self._networks)]
        if not allowed:
            # The same words for an unknown name and for a private address, so that names of this network are not
            # revealed.
            raise FetchError("it has no public address (fetch_images_networks can allow it)")
        return allowed[:MAX_ADDRESSES]

    def _request(self, target: Url) -> urllib3.BaseHTTPResponse:
        host, scheme = str(target.host), str(target.scheme)
        port = target.port or _PORTS[scheme]
        headers = {**_HEADERS, "Host": target.netloc or host}
        reason = "it does not answer"
        for address in self._addresses(host.strip("[]"), port):
            pool = self._pool(scheme, address, port, host.strip("[]"))
            try:
                return pool.request(
                    "GET",
                    target.request_uri,
                    headers=headers,
                    timeout=Timeout(connect=_CONNECT_TIMEOUT_S, read=_READ_TIMEOUT_S),
                    retries=False,
                    redirect=False,
                    preload_content=False,
                    decode_content=False,
                )
            except SSLError:
                reason = "its certificate or its TLS is not valid"
            except HTTPError:
                continue
        raise FetchError(reason)

    def _pool(self, scheme: str, address: str, port: int, host: str) -> urllib3.HTTPConnectionPool:
        """Return the connection to an address, where the host of the URL must answer."""
        if scheme == "http":
            return LimitedHttpPool(address, port)
        return LimitedHttpsPool(address, port, ssl_context=self._tls, server_hostname=host, assert_hostname=host)


class _SystemResolver:
    """Resolves names in threads of its own, so that a slow name server delays nothing but other names."""

    def __init__(self) -> None:
        self._threads = ThreadPool(_RESOLVER_THREADS)
        self._getaddrinfo: Any = monkey.get_original("socket", "getaddrinfo")

    def __call__(self, host: str, port: int) -> Sequence[str]:
        found = in_thread(lambda: self._getaddrinfo(host, port, type=socket.SOCK_STREAM), self._threads)
        return [str(sockaddr[0]) for *_, sockaddr in found]


def host_of(url: str) -> str:
    """Return the host of a URL, for messages: the rest of the URL may be secret."""
    try:
        return parse_url(url[:MAX_URL_LENGTH]).host or "this URL"
    except LocationParseError:
        return "this URL"


def _parsed(url: str) -> Url:
    try:
        target = parse_url(url) if len(url) <= MAX_URL_LENGTH else None
    except LocationParseError:
        target = None
    if target is None or target.scheme not in _PORTS or not target.host or target.port == 0:
        raise FetchError("it is not an http or https URL that can be fetched")
    if target.auth:
        raise FetchError("URLs with a password are not fetched")
    return target


def _read_image(response: urllib3.BaseHTTPResponse, limit: int, count: Callable[[int], None]) -> FetchedImage:
    if response.status != 200:
        raise FetchError(f"it answered with status {response.status}")
    content_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if not content_type.startswith("image/"):
        raise FetchError(f"it answered with {content_type[:64] or 'content without a type'}, which is not an image")
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise FetchError("it answered with compressed content")
    too_large = FetchError(f"its image is larger than {limit} bytes")
    length = response.headers.get("Content-Length", "")
    if length.isdigit() and int(length[:20]) > limit:
        raise too_large
    data = bytearray()
    for piece in response.stream(_PIECE, decode_content=False):
        count(len(piece))
        data += piece
        if len(data) > limit:
            raise too_large
        if len(data) - len(piece) < SIGNATURE_BYTES <= len(data) and not image_type(data[:SIGNATURE_BYTES]):
            raise FetchError(f"what it sent is not a {NAMES} image")
        gevent.sleep(0)
    if length.isdigit() and len(data) != int(length[:20]):
        raise FetchError("it broke off")
    found = image_type(data[:SIGNATURE_BYTES])
    if not found:
        raise FetchError(f"what it sent is not a {NAMES} image")
    return FetchedImage(found, bytes(data))
