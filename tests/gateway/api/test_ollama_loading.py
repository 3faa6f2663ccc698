"""The meaning of ``keep_alive``: seconds, durations, forever, and values that are not durations."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.api.common.ollama_loading import idle_seconds
from protocol.failures import Code, LemonbusError
from protocol.times import NEVER_UNLOADED


@pytest.mark.parametrize("value", [0, 0.0, -0.0, "0", "0s", "0h0m0.0s", "-0"])
def test_zero_is_at_once(value: Any) -> None:
    assert idle_seconds(value) == 0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        (1, 1),
        (0.5, 0.5),
        (300, 300),
        ("300", 300),
        ("+5m", 300),
        ("1h30m", 5400),
        ("1.5h", 5400),
        (".5s", 0.5),
        ("10ms", 0.01),
        ("2us3ns", 2.003e-6),
        ("0h1m", 60),
        *((value, NEVER_UNLOADED) for value in (-1, -0.5, "-1", "-1s", "-1h30m", 10**400, "9" * 60)),
    ],
)
def test_durations(value: Any, seconds: float | None) -> None:
    assert idle_seconds(value) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize("value", ["", "5 m", "soon", "m", "5d", "1h-5m", "٣s", "0" * 65, "0s\n"])
def test_other_words_are_not_a_duration(value: str) -> None:
    with pytest.raises(LemonbusError) as raised:
        idle_seconds(value)
    assert (raised.value.failure.code, raised.value.failure.param) == (Code.INVALID_REQUEST, "keep_alive")
