"""Where a request's key is looked for: headers, and for WebSockets also what a browser can send."""

from __future__ import annotations

import base64

import falcon
import falcon.testing
import pytest

from gateway.access.presented_key import presented_key
from protocol.failures import LemonbusError

KEY = "lb-é?>key"
ENCODED = base64.urlsafe_b64encode(KEY.encode()).decode()
WEBSOCKET = {"Upgrade": "websocket"}


def request(headers: dict[str, str], query: str = "") -> falcon.Request:
    return falcon.Request(falcon.testing.create_environ(headers=headers, query_string=query))


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ({"Sec-WebSocket-Protocol": f"bearer.{ENCODED}"}, ""),
        ({"Sec-WebSocket-Protocol": f"lemonbus, bearer.{ENCODED.rstrip('=')}"}, ""),
        ({}, "api_key=lb-%C3%A9%3F%3Ekey"),
        ({"Authorization": "Bearer " + KEY.encode().decode("latin-1")}, "api_key=other"),
    ],
)
def test_a_websocket_presents_its_key_where_a_browser_can(headers: dict[str, str], query: str) -> None:
    assert presented_key(request({**WEBSOCKET, **headers}, query)) == KEY.encode()


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ({}, "api_key=a"),
        ({"Sec-WebSocket-Protocol": f"bearer.{ENCODED}"}, ""),
        ({**WEBSOCKET, "Sec-WebSocket-Protocol": "logs"}, ""),
        ({**WEBSOCKET, "Sec-WebSocket-Protocol": "bearer.a%b"}, ""),
        ({**WEBSOCKET, "Sec-WebSocket-Protocol": "bearer.abcde"}, ""),
        (WEBSOCKET, "api_key="),
    ],
)
def test_elsewhere_there_is_none(headers: dict[str, str], query: str) -> None:
    with pytest.raises(LemonbusError) as caught:
        presented_key(request(headers, query))
    assert caught.value.failure.http_status == 401
