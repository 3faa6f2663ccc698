"""Checks of the answer to a client's mistake: what each must have, and what it must not reveal."""

from __future__ import annotations

from tests.support.clients.http_exchange import HttpExchange
from tests.support.server import LemonbusServer


def check_error_response(answer: HttpExchange, server: LemonbusServer, *statuses: int) -> None:
    """Check that the answer is a clear error of ours that reveals nothing."""
    assert answer.status in statuses, answer
    body = answer.json()
    assert body["status"] == "error"
    assert body["message"] == body["error"]["message"]
    assert body["error"]["type"]
    assert body["error"]["code"]
    assert "param" in body["error"]
    assert body["error"]["request_id"] == answer.headers["x-request-id"]
    body_text = answer.body.decode()
    assert str(server.home) not in body_text
    assert "Traceback" not in body_text
    assert ".py" not in body_text
