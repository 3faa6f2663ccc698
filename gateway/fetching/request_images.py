"""Fetches the images of one request within its limits: how many, how large, how long, and how many of a client at a time.

Imported only if ``fetch_images`` is on: not every server needs urllib3.
"""

from __future__ import annotations

import base64
import ipaddress
import time
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import gevent

from gateway.fair_limiter import FairLimiter
from gateway.fetching.image_fetch import FetchedImage, FetchError, ImageFetcher, host_of
from gateway.fetching.image_source import is_inline
from gateway.http.bodies import body_limits
from gateway.http.client_disconnect import CLIENT_LEFT, HangUpWatch
from gateway.http.request_context import client_of, request_context
from protocol.config.settings import Settings
from protocol.failures import Code, Failure, LemonbusError, invalid
from protocol.runtime import logs

MAX_IMAGES: Final = 16
"""Images that may be fetched for one request."""
MAX_IMAGE_BYTES: Final = 16 * 1024 * 1024
MAX_FETCHES: Final = 32
"""Concurrent fetches of one process; others wait."""
MAX_FETCHES_OF_CLIENT: Final = 24
"""Of them, for the requests of one client."""

_limiter: Final = FairLimiter(MAX_FETCHES, MAX_FETCHES_OF_CLIENT)


class RequestImages:
    """Fetches the images of one request, each once, as ``data:`` URLs."""

    def __init__(self, settings: Settings, env: dict[str, Any], admit: Callable[[], None]) -> None:
        """Nothing is fetched yet. ``admit`` is called before each image, and raises if the request would be refused."""
        self._settings = settings
        self._env = env
        self._admit = admit
        self._end: float | None = None
        self._bytes_left = settings.body_limit
        self._known: dict[str, str] = {}

    def __call__(self, url: str, field: str) -> str:
        """Return the image as a ``data:`` URL.

        Raises ``invalid_request`` with ``field`` if it cannot be fetched, ``forbidden`` if the caller may have nothing
        fetched, ``cancelled`` when the client hangs up, and whatever ``admit`` raises.
        """
        if is_inline(url):
            return url
        if url not in self._known:
            self._known[url] = self._fetched(url, field)
        return self._known[url]

    def _fetched(self, url: str, field: str) -> str:
        context = request_context(self._env)
        if context.api_key is None:
            context.check_change("have images fetched")
        if len(self._known) >= MAX_IMAGES:
            raise invalid(f"`{field}`: at most {MAX_IMAGES} images of a request are fetched", field)
        self._admit()
        started = time.monotonic()
        if self._end is None:
            self._end = started + self._settings.fetch_images_timeout
        try:
            image = self._fetch(url)
        except FetchError as problem:
            raise invalid(f"`{field}`: no image from {host_of(url)}: {problem}", field) from None
        seconds = round(time.monotonic() - started, 3)
        logs.get_logger().info("image fetched", host=host_of(url), bytes=len(image.data), seconds=seconds)
        return f"data:{image.media_type};base64,{base64.b64encode(image.data).decode()}"

    def _fetch(self, url: str) -> FetchedImage:
        """Fetch in a greenlet that ends when the time is over or the client hangs up, wherever it waits."""
        job = gevent.spawn(self._outcome, url)
        watch = HangUpWatch(self._env, lambda: job.kill(block=False))
        try:
            left = max(0.0, (self._end or 0.0) - time.monotonic())
            if not gevent.wait([job], timeout=left):
                raise FetchError(f"it took longer than {self._settings.fetch_images_timeout:g} seconds")
            outcome = job.get()
        finally:
            watch.close()
            job.kill(block=False)
        if isinstance(outcome, gevent.GreenletExit):
            raise Failure(Code.CANCELLED, CLIENT_LEFT).raised()
        if isinstance(outcome, FetchedImage):
            # In base64 it is a third larger.
            self._bytes_left -= len(outcome.data) * 4 // 3
            return outcome
        raise outcome

    def _outcome(self, url: str) -> FetchedImage | Exception:
        """Return the result or the exception: if a greenlet raised, gevent would print it."""
        limit = max(0, min(MAX_IMAGE_BYTES, self._bytes_left * 3 // 4))
        try:
            with _limiter.turn(client_of(self._env)):
                fetcher = _fetcher(tuple(self._settings.fetch_images_networks))
                return fetcher.fetch(url, limit, lambda size: body_limits.count(self._env, size))
        except (FetchError, LemonbusError) as problem:
            return problem


@cache
def _fetcher(networks: tuple[str, ...]) -> ImageFetcher:
    return ImageFetcher([ipaddress.ip_network(network) for network in networks])
