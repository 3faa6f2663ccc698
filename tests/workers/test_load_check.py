"""What is checked before an engine is started."""

from __future__ import annotations

from workers.worker.load_check import available_memory


def test_available_memory() -> None:
    assert available_memory("MemTotal: 9 kB\nMemAvailable:    2048 kB\n") == 2 * 1024 * 1024
    assert available_memory("") == 0
