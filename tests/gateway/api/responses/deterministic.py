"""A response builder with counted ids and a fixed clock, so that its result can be compared with a file."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, Final

import msgspec

from gateway.api.responses.input.input_items import NewId
from gateway.api.responses.input.request import ResponseRequest
from gateway.api.responses.output.response_object import ResponseBuilder

GOLDEN: Final = Path(__file__).parent / "golden"
NOW: Final = 1_700_000_000.0


def counting_ids() -> NewId:
    """Return a source of ids: ``msg_1``, ``rs_2`` …"""
    numbers = itertools.count(1)
    return lambda prefix: f"{prefix}_{next(numbers)}"


def builder(**fields: Any) -> ResponseBuilder:
    """Return the builder of a response to a request with these fields."""
    request = msgspec.convert({"model": "m", "input": "hi", **fields}, ResponseRequest)
    return ResponseBuilder(request, counting_ids(), NOW, "m")
