"""What the present use of several devices amounts to."""

from __future__ import annotations

import pytest

from protocol.messages.devices import DeviceReading
from protocol.models.memory import HOST
from supervisor.handlers.system_stats import OLD_S, device_use

CARD = DeviceReading("nvidia", "0000:01:00.0", "0000:01:00.0", total=24, free=20, used_percent=40.0)
SECOND = DeviceReading("nvidia", "0000:02:00.0", "0000:02:00.0", total=24, free=23, used_percent=90.0)
GRAPHICS = DeviceReading("amd", "0000:c4:00.0", HOST, used_percent=5.0)
SILENT = DeviceReading("intel", "0000:00:02.0", HOST)
BROKEN = DeviceReading("nvidia", "0000:03:00.0", "0000:03:00.0", total=24, free=1, used_percent=99.0, problem="hangs")


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        ([], (None, None)),
        ([(CARD, 0.0)], (40.0, 4)),
        ([(CARD, 0.0), (SECOND, 1.0), (GRAPHICS, 0.0)], (90.0, 5)),
        ([(GRAPHICS, 0.0)], (5.0, None)),
        ([(SILENT, 0.0)], (None, None)),
        ([(CARD, OLD_S + 1), (BROKEN, 0.0)], (None, None)),
    ],
)
def test_the_use_of_devices(
    readings: list[tuple[DeviceReading, float]], expected: tuple[float | None, int | None]
) -> None:
    assert device_use(readings) == expected
