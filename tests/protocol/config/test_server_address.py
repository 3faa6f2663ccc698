"""Addresses of other servers: where a request goes, and which addresses are none."""

from __future__ import annotations

import pytest

from protocol.config.server_address import parse_address


@pytest.mark.parametrize(
    ("url", "shown", "port", "path"),
    [
        ("http://gpu1:8000/v1", "http://gpu1:8000", 8000, "/v1/chat/completions"),
        ("https://api.example.org/v1/", "https://api.example.org", 443, "/v1/chat/completions"),
        ("https://example.org/api/v1", "https://example.org", 443, "/api/v1/chat/completions"),
        ("https://example.org", "https://example.org", 443, "/chat/completions"),
        ("http://[::1]:80/v1", "http://[::1]", 80, "/v1/chat/completions"),
    ],
)
def test_where_a_request_goes(url: str, shown: str, port: int, path: str) -> None:
    address = parse_address(url)
    assert (address.url, address.port, address.path_of("/v1/chat/completions")) == (shown, port, path)
    assert address.path_of("/health") == "/health"


@pytest.mark.parametrize(
    "url",
    [
        *("ftp://a/v1", "http:///v1", "http://u:p@a/v1", "http://a/v1?x=1"),
        *("http://a:99999/v1", "http://a:0/v1", "http://a:b/v1", "http://[::1/v1", "http://[x]/v1"),
    ],
)
def test_what_is_not_an_address(url: str) -> None:
    with pytest.raises(ValueError):
        parse_address(url)
