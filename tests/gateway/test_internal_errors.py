"""An error in a callback of the event loop is a line of the log, and the loop goes on."""

from __future__ import annotations

from typing import Any

import gevent
from gevent.hub import Hub

from gateway.internal_errors import INTERNAL_ERRORS, install_error_handler
from protocol.runtime import logs


def test_an_error_in_a_callback_is_logged_and_counted(records: list[dict[str, Any]]) -> None:
    def fail() -> None:
        raise RuntimeError("ours")

    logs.configure("gateway", "info", "json")
    hub = gevent.get_hub()
    before = INTERNAL_ERRORS.count
    install_error_handler(hub)
    try:
        for _ in range(2):
            hub.loop.run_callback(fail)
            gevent.sleep(0)
        gevent.sleep(0)
    finally:
        hub.print_exception = Hub.print_exception.__get__(hub)
    assert [(line["event"], line["errors"] - before) for line in records] == [
        ("internal error", 1),
        ("internal error", 2),
    ]
    assert "RuntimeError: ours" in records[0]["exception"]
