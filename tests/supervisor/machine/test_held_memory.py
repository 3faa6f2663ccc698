"""What an engine holds is that of its processes: on devices and of the host, counted once where a device uses the host's memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from protocol.models.memory import HOST
from protocol.models.nodes import HEAD
from supervisor.machine.held_memory import HeldMemory

CARD = "0000:03:00.0"


def held(used: dict[str, int], on_host: int) -> HeldMemory:
    def used_by(pids: list[int]) -> dict[str, int]:
        assert pids == [5, 6]
        return used

    devices: Any = SimpleNamespace(devices=lambda: used, used_by=used_by)
    processes: Any = SimpleNamespace(
        started_by=lambda _worker: [5, 6],
        held_bytes=lambda _worker: on_host,
        node_of=lambda worker: "gpu2" if worker == "elsewhere" else HEAD,
    )
    return HeldMemory(devices, processes, lambda worker, node: {f"{node}:{worker}": 4})


@pytest.mark.parametrize(
    ("used", "on_host", "everything"),
    [
        ({CARD: 3, HOST: 2}, 10, {CARD: 3, HOST: 12}),
        ({CARD: 3}, 10, {CARD: 3, HOST: 10}),
        ({CARD: 3}, 0, {CARD: 3}),
        ({}, 10, {HOST: 10}),
        ({}, 0, {}),
    ],
)
def test_what_an_engine_holds(used: dict[str, int], on_host: int, everything: dict[str, int]) -> None:
    assert held(used, on_host).on_devices("w1") == used
    assert held(used, on_host).all("w1") == everything


def test_what_an_engine_of_another_node_holds_on_devices_is_read_there() -> None:
    assert held({CARD: 3}, 10).on_devices("elsewhere") == {"gpu2:elsewhere": 4}, (
        "the pids are those of other processes here"
    )
