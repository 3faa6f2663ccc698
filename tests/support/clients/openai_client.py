"""The ``openai`` package as it is, imported only where it is needed: that takes most of a second in every test process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.server import LemonbusServer

if TYPE_CHECKING:
    import openai


def openai_client(server: LemonbusServer, prefix: str = "/v1") -> openai.OpenAI:
    """Return a client that sends each request once and has no key."""
    import openai  # noqa: PLC0415 - see above

    return openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}{prefix}", api_key="none", max_retries=0, timeout=30)
