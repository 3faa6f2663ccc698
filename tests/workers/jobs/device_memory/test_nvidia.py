"""NVIDIA's GPUs as the library shows them: whole, divided, with the machine's memory, lost; and a library that shows nothing."""

from __future__ import annotations

import pynvml
import pytest

from protocol.messages.devices import DeviceReading, ReadDevices
from protocol.models.memory import HOST
from tests.support.fakes.nvml import LOST, MIB, FakeGpu, FakeNvml, h100, install
from workers.jobs import read_devices
from workers.jobs.device_memory import nvidia
from workers.jobs.read_devices import DeviceReader

ADDRESS = "0000:00:06.0"
WHOLE = DeviceReading(
    vendor="nvidia",
    address=ADDRESS,
    place=ADDRESS,
    uuid="GPU-0d8f1364-0d58-0170-c995-b1c52bc514a8",
    name="NVIDIA H100 80GB HBM3",
    total=81079 * MIB,
    free=(81079 - 1854) * MIB,
    used_percent=37.0,
    processes={4912: 1846 * MIB},
)


def test_a_gpu_has_its_memory_without_the_drivers_part(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeNvml([h100()]))
    nvidia.start()
    assert nvidia.read() == [WHOLE]


def test_an_old_driver_counts_its_own_part_as_used(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeNvml([h100()], lacks=("nvmlDeviceGetMemoryInfo_v2",)))
    (found,) = nvidia.read()
    assert (found.total, found.free) == (85520809984, (81079 - 1854) * MIB)


def test_a_process_in_both_lists_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeNvml([h100(compute={7: 5, 8: None}, graphics={7: 9, 9: 1})]))
    assert nvidia.read()[0].processes == {7: 9, 8: 0, 9: 1}


def test_the_parts_of_a_divided_gpu_are_places(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [FakeGpu("H100 MIG 1g.10gb", f"MIG-{number}", total=10 << 30, used=number << 30) for number in (1, 2)]
    install(monkeypatch, FakeNvml([h100(parts=[parts[0], None, parts[1]])]))
    assert nvidia.read() == [
        DeviceReading("nvidia", ADDRESS, "MIG-1", "MIG-1", "H100 MIG 1g.10gb", total=10 << 30, free=9 << 30),
        DeviceReading("nvidia", ADDRESS, "MIG-2", "MIG-2", "H100 MIG 1g.10gb", total=10 << 30, free=8 << 30),
    ]


def test_a_gpu_without_memory_of_its_own_uses_the_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeNvml([FakeGpu("NVIDIA GB10", "GPU-1", (0, 1, 0), percent=5, compute={3: 40 * MIB})]))
    assert nvidia.read() == [
        DeviceReading("nvidia", "0000:01:00.0", HOST, "GPU-1", "NVIDIA GB10", used_percent=5.0, processes={3: 40 * MIB})
    ]


def test_a_lost_gpu_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeNvml([h100(error=LOST), h100()]))
    lost, other = nvidia.read()
    assert other == WHOLE
    assert (lost.address, lost.total) == ("GPU 0", 0)
    assert lost.problem == "The memory of GPU 0 cannot be read: GPU is lost"


def reader(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> DeviceReader:
    clock = [0.0]
    monkeypatch.setattr(read_devices.time, "monotonic", lambda: clock[0])
    found = DeviceReader(str(tmp_path))
    found.clock = clock  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (18, "RM has detected an NVML/RM version mismatch."),
        (9, "Driver Not Loaded"),
        (12, "NVML Shared Library Not Found"),
    ],
)
def test_a_library_that_does_not_start_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object, error: int, text: str
) -> None:
    library = install(monkeypatch, FakeNvml([h100()], init_error=error))
    ours = reader(monkeypatch, tmp_path)
    answer = ours.read(ReadDevices(1, nvidia=True))
    assert (answer.number, answer.devices) == (1, [])
    assert answer.problems == [f"The memory of NVIDIA GPUs is unknown: libnvidia-ml.so.1: {text}"]
    library.init_error = 0
    assert ours.read(ReadDevices(2, nvidia=True)).problems == answer.problems
    assert not ours.is_outdated
    ours.clock[0] = read_devices.NVIDIA_RETRY_S + 1  # type: ignore[attr-defined]
    assert ours.is_outdated


def test_a_driver_that_fails_later(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    library = install(monkeypatch, FakeNvml([h100()]))
    ours = reader(monkeypatch, tmp_path)
    assert ours.read(ReadDevices(1, nvidia=True)).devices == [WHOLE]
    library.count_error = pynvml.NVML_ERROR_UNKNOWN
    assert ours.read(ReadDevices(2, nvidia=True)).problems == ["The memory of NVIDIA GPUs is unknown: Unknown Error"]


def test_without_the_driver_the_library_is_not_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    install(monkeypatch, FakeNvml([h100()]))
    assert reader(monkeypatch, tmp_path).read(ReadDevices(1)).devices == []
