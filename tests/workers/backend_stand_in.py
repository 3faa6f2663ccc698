"""A backend as an attempt needs it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from workers.backends.error_texts import ErrorTexts


def backend_stand_in(**others: Any) -> Any:
    """Return a backend that refuses nothing. ``others``: attributes with other values, or further ones."""
    usual = {
        "program": "engine",
        "alias": "m",
        "most_context": 0,
        "key": "",
        "error_texts": ErrorTexts(),
        "reported_build": "",
        "clock_shift": 0,
        "build": "",
        "refusal": lambda *_: None,
    }
    return SimpleNamespace(**{**usual, **others})
