"""Errors of sources: what clients may read, and what only the log has."""

from __future__ import annotations

import pytest

from workers.jobs.errors import SourceError


@pytest.mark.parametrize(
    ("reported", "shown"),
    [
        ("GET https://me:secret@hub/a failed", "GET https://***@hub/a failed"),
        ("302 to https://cdn/a.gguf?X-Signature=secret&b=c, then 403", "302 to https://cdn/a.gguf?*** then 403"),
        ("url='http://h/a?token=secret' is gone", "url='http://h/a?***' is gone"),
        ("is it there? no", "is it there? no"),
    ],
)
def test_no_secret_of_an_address_is_logged(reported: str, shown: str) -> None:
    assert SourceError("it failed", reported).detail == shown
