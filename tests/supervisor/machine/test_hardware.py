"""Facts that are read from the kernel's files, on machines that are only files."""

from __future__ import annotations

import platform
from pathlib import Path

import psutil
import pytest

from protocol.messages.system_info import Cpu, Gpu, Npu
from protocol.models.devices import Device
from supervisor.machine.hardware import read_machine, read_machine_from
from tests.support.fakes.machines import RYZEN, FakeMachine, laptop, workstation


def test_this_machine_has_at_least_a_processor() -> None:
    here = read_machine("/")
    assert here.cpu.name
    assert 1 <= here.cpu.cores <= here.cpu.threads
    assert here.memory > 1 << 28
    assert Device.CPU in here.devices
    assert here is read_machine("/")


def test_the_documents_laptop(tmp_path: Path) -> None:
    found = read_machine_from(laptop(tmp_path).root)
    assert found.cpu == Cpu(RYZEN, psutil.cpu_count(logical=False), psutil.cpu_count(), platform.machine())
    assert found.memory == psutil.virtual_memory().total
    assert found.system == f"{platform.system()}-6.14.0-test (Test OS 24.04)"
    assert found.amd_gpus == [
        Gpu(
            "0000:c4:00.0",
            "AMD Radeon 890M Graphics",
            "gfx1150",
            1 << 29,
            "amdgpu",
            "6.14.0-test",
            integrated=True,
        )
    ]
    assert found.npu == Npu("RyzenAI-npu4", "XDNA2", "amdxdna", "6.14.0-test")
    assert found.nvidia_gpus == []
    assert found.devices == [Device.CPU, Device.AMD_GPU, Device.AMD_NPU]
    assert (found.more["board"], found.more["bios"]) == ("ASUSTeK Zenbook S 16", "1.0.0")
    assert found.more["cpu_max_clock"] == "5100 MHz"


def test_a_workstation_with_cards_of_both_vendors(tmp_path: Path) -> None:
    found = read_machine_from(workstation(tmp_path).root)
    (amd,) = found.amd_gpus
    assert (amd.name, amd.family) == ("AMD Radeon RX 7900 XT/7900 XTX", "gfx1100")
    assert (amd.memory, amd.integrated, amd.available) == (24 << 30, False, True)
    ours, given_away = found.nvidia_gpus
    assert ours == Gpu("0000:41:00.0", "NVIDIA GeForce RTX 4090", driver="nvidia", driver_version="550.54.14")
    assert ours.available
    assert (given_away.name, given_away.driver) == ("NVIDIA H100 SXM5 80GB", "vfio-pci")
    assert not given_away.available
    assert found.npu is None
    assert found.devices == [Device.CPU, Device.AMD_GPU, Device.NVIDIA_GPU]


def test_a_separate_driver_has_its_own_version(tmp_path: Path) -> None:
    fake = laptop(tmp_path)
    fake.write("sys/module/amdgpu/version", "6.10.5\n")
    fake.write("sys/module/amdxdna/version", "2.18.0\n")
    found = read_machine_from(tmp_path)
    assert found.npu is not None
    assert (found.amd_gpus[0].driver_version, found.npu.driver_version) == ("6.10.5", "2.18.0")


def test_devices_without_a_driver_are_there_and_not_available(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.device("0000:c4:00.0", "1002:150e:c1", "0x038000")
    fake.device("0000:c5:00.1", "1022:1502:00", "0x118000")
    found = read_machine_from(tmp_path)
    assert found.npu == Npu("AMD NPU", "XDNA")
    assert not found.npu.available
    assert found.amd_gpus == [Gpu("0000:c4:00.0", integrated=True)]
    assert found.devices == [Device.CPU]


@pytest.mark.parametrize(
    ("files", "integrated"),
    [
        ({}, True),
        ({"mem_info_vram_vendor": "unknown"}, True),
        ({"mem_info_vram_vendor": "samsung"}, False),
        ({"board_info": "type : oam"}, False),
    ],
)
def test_a_card_of_unknown_family_is_recognized_by_its_board(
    tmp_path: Path, files: dict[str, str], integrated: bool
) -> None:
    FakeMachine(tmp_path).device("0000:01:00.0", "1002:ffff:00", "0x120000", "amdgpu", **files)
    (gpu,) = read_machine_from(tmp_path).amd_gpus
    assert gpu.integrated is integrated


def test_the_compute_driver_names_cards_by_location(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.device("0001:83:00.1", "1002:1586:00", "0x030000", "amdgpu")
    fake.device("0000:83:00.0", "1002:738c:00", "0x120000", "amdgpu")
    fake.kfd(0, 0, 0)
    fake.kfd(1, 110501, 0x8301, domain=1)
    fake.kfd(2, 90010, 0x8300)
    assert [gpu.family for gpu in read_machine_from(tmp_path).amd_gpus] == ["gfx90a", "gfx1151"]


def test_in_a_container_nvidias_driver_shows_what_the_bus_hides(tmp_path: Path) -> None:
    FakeMachine(tmp_path).write("proc/driver/nvidia/gpus/0000:41:00.0/information", "Model:   NVIDIA L4\n")
    assert read_machine_from(tmp_path).nvidia_gpus == [Gpu("0000:41:00.0", "NVIDIA L4", driver="nvidia")]


def test_an_arm_board_is_shown_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "proc" / "device-tree").mkdir(parents=True)
    (tmp_path / "proc" / "device-tree" / "model").write_text("Raspberry Pi 5 Model B\0")
    (tmp_path / "proc" / "cpuinfo").write_text("processor\t: 0\nBogoMIPS\t: 108\n\nprocessor\t: 1\nBogoMIPS\t: 108\n")
    assert read_machine_from(tmp_path).cpu.name == "Raspberry Pi 5 Model B"


@pytest.mark.parametrize("garbage", ["", "\0\xff", "0x", "1002:::", "-1"])
def test_nonsense_in_the_kernels_files_does_no_harm(tmp_path: Path, garbage: str) -> None:
    fake = laptop(tmp_path)
    for path in [each for each in tmp_path.rglob("*") if each.is_file() and not each.is_symlink()]:
        fake.write(str(path.relative_to(tmp_path)), garbage)
    found = read_machine_from(tmp_path)
    assert found.devices == [Device.CPU]
    assert found.cpu.name == platform.machine()
    assert read_machine_from(tmp_path / "nowhere").devices == [Device.CPU]
