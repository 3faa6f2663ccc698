"""The ``anthropic`` package as it is, imported only where it is needed: that takes more than a second in every test process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.server import LemonbusServer

if TYPE_CHECKING:
    import anthropic


def anthropic_client(server: LemonbusServer, prefix: str = "") -> anthropic.Anthropic:
    """Return a client that sends each request once and has no key; it adds ``/v1`` to every path."""
    import anthropic  # noqa: PLC0415 - see above

    base = f"http://127.0.0.1:{server.port}{prefix}"
    return anthropic.Anthropic(base_url=base, api_key="none", max_retries=0, timeout=30)
