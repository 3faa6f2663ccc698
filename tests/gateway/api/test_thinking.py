"""Whether a model is to think, in the fields that clients have for it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from gateway.api.common.inference.thinking import no_thinking, with_thinking_as_asked

_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def translated(fields: dict[str, Any]) -> dict[str, Any]:
    data = json.dumps(fields).encode()
    found: dict[str, Any] = json.loads(with_thinking_as_asked(data, _decode(data)))
    return found


OFF = {"chat_template_kwargs": {"enable_thinking": False}, "thinking_budget_tokens": 0}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"reasoning_effort": "none"}, OFF),
        ({"thinking": {"type": "disabled"}}, {"thinking": {"type": "disabled"}, **OFF}),
        ({"think": False, "chat_template_kwargs": {"x": None}}, {"think": False, **OFF}),
        ({"enable_thinking": True}, {"enable_thinking": True}),
        ({"reasoning_effort": "high"}, {"reasoning_effort": "high"}),
        ({"reasoning": {"effort": "low"}}, {"reasoning": {"effort": "low"}, "reasoning_effort": "low"}),
        ({"thinking": "none"}, {"thinking": "none"}),
        ({"reasoning": 0, "think": 0}, {"reasoning": 0, "think": 0}),
    ],
)
def test_which_fields_decide_whether_the_model_thinks(given: dict[str, Any], expected: dict[str, Any]) -> None:
    found = translated(given)
    if given.get("chat_template_kwargs"):
        expected = {**expected, "chat_template_kwargs": {"enable_thinking": False, "x": None}}
    assert found == expected


def test_variables_of_the_template_win() -> None:
    assert no_thinking({"enable_thinking": True}) == {"chat_template_kwargs": {"enable_thinking": True}}
