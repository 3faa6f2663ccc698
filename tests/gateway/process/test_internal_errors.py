"""Exceptions of a real gateway's own code reach the supervisor, wherever they are raised."""

from __future__ import annotations

from pathlib import Path

from tests.gateway.gateway_harness import running_gateway
from tests.gateway.process.chat_requests import error_of
from tests.gateway.raw_http import read_to_end


def test_a_pong_reports_exceptions_of_requests_and_of_the_event_loop_once(tmp_path: Path) -> None:
    with running_gateway(tmp_path / "r", "tests.gateway.process.failing_gateway") as harness:
        assert harness.internal_errors() == 0
        response = harness.get("/fails/resource")
        assert (response[0], error_of(response)["code"]) == (500, "internal_error")
        assert harness.internal_errors() == 1
        with harness.connect() as connection:
            connection.sendall(b"GET /fails/body HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            received = read_to_end(connection)
        assert b"one piece" in received
        assert not received.endswith(b"0\r\n\r\n")
        assert harness.internal_errors() == 1
        assert harness.get("/fails/event-loop")[0] == 200
        assert harness.internal_errors() == 1
        assert harness.internal_errors() == 0
