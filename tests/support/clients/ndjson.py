"""Reads NDJSON from an exchange, even while it is running."""

from __future__ import annotations

import json
from typing import Any

from tests.support.clients.http_exchange import HttpExchange


def lines(exchange: HttpExchange) -> list[Any]:
    """Return the whole lines that have come so far."""
    *whole, _ = exchange.body.split(b"\n")
    return [json.loads(line) for line in whole]
