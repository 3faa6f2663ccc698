"""Machines that are only a tree of files: the content that their kernels would show under ``proc``, ``sys``, ``etc`` and ``usr``."""

from __future__ import annotations

from pathlib import Path

RYZEN = "AMD Ryzen AI 9 HX 375 w/ Radeon 890M"


class FakeMachine:
    """A root directory, filled piece by piece."""

    def __init__(self, root: Path, processor: str = "Some Processor") -> None:
        self.root = root
        self.write("proc/cpuinfo", f"processor\t: 0\nmodel name\t: {processor}\n")
        self.write("proc/sys/kernel/osrelease", "6.14.0-test\n")
        self.write("etc/os-release", 'NAME="Test OS"\nPRETTY_NAME="Test OS 24.04"\n')

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def device(self, address: str, numbers: str, kind: str, driver: str = "", **files: str) -> str:
        """Put a device on the bus; ``numbers``: ``vendor:device:revision``. Return its folder."""
        folder = f"sys/bus/pci/devices/{address}"
        for name, number in zip(("vendor", "device", "revision"), numbers.split(":"), strict=True):
            self.write(f"{folder}/{name}", f"0x{number}\n")
        self.write(f"{folder}/class", kind + "\n")
        for name, text in files.items():
            self.write(f"{folder}/{name}", text + "\n")
        if driver:
            (self.root / folder / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
        return folder

    def kfd(self, node: int, gfx: int, location: int, domain: int = 0) -> None:
        """Add a node of the compute driver."""
        properties = (
            f"cpu_cores_count 0\nsimd_count 32\ngfx_target_version {gfx}\nlocation_id {location}\ndomain {domain}\n"
        )
        self.write(f"sys/class/kfd/kfd/topology/nodes/{node}/properties", properties)


def laptop(root: Path) -> FakeMachine:
    """The document's own example: a Ryzen AI with its graphics and its neural processor."""
    machine = FakeMachine(root, RYZEN)
    machine.device("0000:c4:00.0", "1002:150e:c1", "0x038000", "amdgpu", mem_info_vram_total=str(1 << 29))
    machine.kfd(1, 110500, 0xC400)
    machine.device("0000:c5:00.1", "1022:17f0:11", "0x118000", "amdxdna", vbnv="RyzenAI-npu4")
    machine.device("0000:00:00.0", "1022:1507:00", "0x060000")
    machine.write("sys/class/dmi/id/sys_vendor", "ASUSTeK\n")
    machine.write("sys/class/dmi/id/product_name", "Zenbook S 16\n")
    machine.write("sys/class/dmi/id/bios_version", "1.0.0\n")
    machine.write("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "5100000\n")
    machine.write(
        "usr/share/libdrm/amdgpu.ids",
        "# ids\n1.0.0\n150E,\tC0,\tAMD Radeon Graphics\n150E,\tC1,\tAMD Radeon 890M Graphics\n",
    )
    return machine


def workstation(root: Path) -> FakeMachine:
    """Cards of both makers, and one that is passed through to a virtual machine."""
    machine = FakeMachine(root)
    card = machine.device(
        "0000:03:00.0", "1002:744c:c8", "0x030000", "amdgpu", mem_info_vram_total=str(24 << 30), board_info="type : cem"
    )
    for name, number in (("major", 11), ("minor", 0), ("revision", 0)):
        machine.write(f"{card}/ip_discovery/die/0/GC/0/{name}", f"{number}\n")
    machine.device("0000:03:00.1", "1002:ab30:00", "0x040300", "snd_hda_intel")
    machine.device("0000:41:00.0", "10de:2684:a1", "0x030000", "nvidia")
    machine.device("0000:81:00.0", "10de:2330:a1", "0x030200", "vfio-pci")
    machine.write("proc/driver/nvidia/gpus/0000:41:00.0/information", "Model: \t\t NVIDIA GeForce RTX 4090\nIRQ: 1\n")
    machine.write(
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 01:44:30 UTC 2024\nGCC version: 12.2.0\n",
    )
    machine.write(
        "usr/share/misc/pci.ids",
        "# ids\n1002  Advanced Micro Devices, Inc. [AMD/ATI]\n\t744c  Navi 31 [Radeon RX 7900 XT/7900 XTX]\n"
        "\t\t1002 0e3b  A board\n10de  NVIDIA Corporation\n\t2330  GH100 [H100 SXM5 80GB]\n10df  Emulex\n\t2684  Wrong\n",
    )
    return machine
