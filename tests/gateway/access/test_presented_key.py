"""Where a request's key is looked for: in headers, and for WebSockets also where a browser can put it."""

from __future__ import annotations

import base64

import falcon
import falcon.testing
import pytest

from gateway.access.presented_key import presented_key
from protocol.failures import LemonbusError

KEY = "lb-é?>key"
ENCODED = base64.urlsafe_b64encode(KEY.encode()).decode()
LATIN_1 = KEY.encode().decode("latin-1")
"""As WSGI has the bytes of a header."""
WEBSOCKET = {"Upgrade": "websocket"}


def request(headers: dict[str, str], query: str = "", path: str = "/logs/stream") -> falcon.Request:
    return falcon.Request(falcon.testing.create_environ(path, headers=headers, query_string=query))


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ({"Sec-WebSocket-Protocol": f"bearer.{ENCODED}"}, ""),
        ({"Sec-WebSocket-Protocol": f"lemonbus, bearer.{ENCODED.rstrip('=')}"}, ""),
        ({"Sec-WebSocket-Protocol": f"realtime, openai-insecure-api-key.{LATIN_1}"}, ""),
        ({}, "api_key=lb-%C3%A9%3F%3Ekey"),
        ({"Authorization": f"Bearer {LATIN_1}"}, "api_key=other"),
    ],
)
def test_a_websocket_presents_its_key_where_a_browser_can(headers: dict[str, str], query: str) -> None:
    assert presented_key(request({**WEBSOCKET, **headers}, query)) == KEY.encode()


@pytest.mark.parametrize(
    ("headers", "query", "path"),
    [
        ({}, "api_key=a", "/logs/stream"),
        (WEBSOCKET, "api_key=a", "/v1/models"),
        ({**WEBSOCKET, "Sec-WebSocket-Protocol": f"bearer.{ENCODED}"}, "", "/v1/models"),
        ({"Sec-WebSocket-Protocol": f"bearer.{ENCODED}"}, "", "/logs/stream"),
        ({**WEBSOCKET, "Sec-WebSocket-Protocol": "logs"}, "", "/logs/stream"),
        ({**WEBSOCKET, "Sec-WebSocket-Protocol": "bearer.a%b"}, "", "/logs/stream"),
        ({**WEBSOCKET, "Sec-WebSocket-Protocol": "bearer.abcde"}, "", "/logs/stream"),
        (WEBSOCKET, "api_key=", "/logs/stream"),
    ],
)
def test_no_key_is_found_elsewhere(headers: dict[str, str], query: str, path: str) -> None:
    with pytest.raises(LemonbusError) as caught:
        presented_key(request(headers, query, path))
    assert caught.value.failure.http_status == 401
