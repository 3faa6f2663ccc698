"""Checks a request, as the gateway does."""

from __future__ import annotations

from typing import Any

import msgspec

from protocol.requests.request_limits import fields_within_limits


def response_format(schema: dict[str, Any]) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}}


def check(body: object) -> None:
    fields_within_limits(msgspec.json.encode(body))
