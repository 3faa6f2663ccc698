"""What all tests of the gateway share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.decoding import decoder_process


@pytest.fixture(scope="package", autouse=True)
def no_decoder_is_left() -> Iterator[None]:
    """End the decoders of the tests' own process, whose sockets would be open at its end."""
    yield
    while decoder_process._idle:
        decoder_process._idle.pop().close()
