"""What a ``Host`` header may say."""

from __future__ import annotations

import pytest

from gateway.http.gunicorn_parser import is_host


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost",
        "127.0.0.1:13305",
        "[::1]",
        "[fe80::1%25eth0]:80",
        "a_b.example.",
        "xn--bcher-kva.example:",
        "%41",
        ":80",
    ],
)
def test_hosts(text: str) -> None:
    assert is_host(text)


@pytest.mark.parametrize(
    "text",
    ["a b", "a/b", "a@b", "a,b:1:2", "[::1", "a]b", "::1", "a:port", "http://a", "%4", "a#b", "a?b", "ä", '"a"', "a\n"],
)
def test_what_is_none(text: str) -> None:
    assert not is_host(text)
