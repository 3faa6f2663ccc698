"""Which peers of an earlier supervisor have not reported yet, and what they have announced but not sent. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from protocol.ids import RequestKey


class ExpectedPeers:
    """The peers that are waited for, by name."""

    def __init__(self) -> None:
        """Wait for none."""
        self._names: set[str] = set()
        self._requests: set[RequestKey] = set()

    def expect(self, name: str) -> None:
        """Wait for a peer."""
        self._names.add(name)

    def reported(self, name: str) -> None:
        """Stop waiting for a peer: it has said Hello, or has ended."""
        self._names.discard(name)

    def announced(self, gateway: str, requests: Iterable[RequestKey]) -> None:
        """Wait for requests that a gateway is about to submit. This replaces what it announced before."""
        self.forget_requests(gateway)
        self._requests.update(requests)

    def submitted(self, requests: Iterable[RequestKey]) -> None:
        """Stop waiting for requests: they were submitted or cancelled, or a worker has them."""
        self._requests.difference_update(requests)

    def forget_requests(self, gateway: str) -> None:
        """Stop waiting for requests of a gateway."""
        self._requests = {key for key in self._requests if key.gateway != gateway}

    @property
    def all_reported(self) -> bool:
        """Whether every peer has said Hello, or has ended."""
        return not self._names

    @property
    def complete(self) -> bool:
        """Whether nothing is waited for."""
        return self.all_reported and not self._requests

    @property
    def missing(self) -> list[str]:
        """The peers that have not reported."""
        return sorted(self._names)
