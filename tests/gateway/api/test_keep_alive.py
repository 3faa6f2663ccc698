"""Which values of ``keep_alive`` unload a model, and which are no duration."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.api.common.keep_alive import unloads
from protocol.failures import Code, LemonbusError


@pytest.mark.parametrize("value", [0, 0.0, -0.0, "0", "0s", "0h0m0.0s", "-0"])
def test_zero_unloads(value: Any) -> None:
    assert unloads(value)


@pytest.mark.parametrize(
    "value", [None, 1, -1, 0.5, 300, "5m", "1h30m", "-1", "-1s", "300", "1.5h", ".5s", "10ms", "0h1m"]
)
def test_any_other_duration_keeps(value: Any) -> None:
    assert not unloads(value)


@pytest.mark.parametrize("value", ["", "5 m", "soon", "m", "5d", "1h-5m", "٣s", "0" * 65, "0s\n"])
def test_other_words_are_no_duration(value: str) -> None:
    with pytest.raises(LemonbusError) as raised:
        unloads(value)
    assert (raised.value.failure.code, raised.value.failure.param) == (Code.INVALID_REQUEST, "keep_alive")
