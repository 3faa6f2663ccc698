"""What this machine is, as its kernel tells: read once, before the loop turns, from ``/proc`` and ``/sys``."""

from __future__ import annotations

import platform
import re
from functools import cache
from pathlib import Path
from typing import Final

from protocol.messages.system_info import Cpu, MachineInfo
from supervisor.machine import pci

_CPUINFO: Final = re.compile(r"^([^\t:]+?)\s*:\s*(.*)$", re.MULTILINE)
_MEMORY: Final = re.compile(r"^MemTotal:\s+(\d+) kB", re.MULTILINE)
_PRETTY: Final = re.compile(r'^PRETTY_NAME="?([^"\n]*)"?', re.MULTILINE)


@cache
def read_machine(root: str) -> MachineInfo:
    """Return the machine whose ``proc``, ``sys``, ``etc`` and ``usr`` are in ``root``."""
    return read_machine_from(Path(root))


def read_machine_from(root: Path) -> MachineInfo:
    """Read the machine; what cannot be read is left empty, nothing raises."""
    kernel = pci.read_text(root / "proc/sys/kernel/osrelease") or platform.release()
    devices = pci.devices(root)
    return MachineInfo(
        system=_system(root, kernel),
        memory=_memory(root),
        cpu=_cpu(root),
        amd_gpus=pci.amd_gpus(root, devices, kernel),
        nvidia_gpus=pci.nvidia_gpus(root, devices),
        npu=pci.npu(root, devices, kernel),
        more={key: value for key, value in _details(root, kernel).items() if value},
    )


def _system(root: Path, kernel: str) -> str:
    found = _PRETTY.search(pci.read_text(root / "etc/os-release") or pci.read_text(root / "usr/lib/os-release"))
    system = f"{platform.system()}-{kernel}"
    return f"{system} ({found[1]})" if found else system


def _memory(root: Path) -> int:
    found = _MEMORY.search(pci.read_text(root / "proc/meminfo"))
    return int(found[1]) * 1024 if found else 0


def _cpu(root: Path) -> Cpu:
    family = platform.machine()
    said: list[dict[str, str]] = [
        dict(_CPUINFO.findall(block)) for block in pci.read_text(root / "proc/cpuinfo").split("\n\n") if block.strip()
    ]
    processors = [each for each in said if "processor" in each]
    threads = max(1, len(processors))
    board = pci.read_text(root / "proc/device-tree/model").rstrip("\0")  # where processors have no names, boards do
    names = (each.get(key, "") for key in ("model name", "cpu model", "Hardware", "Model") for each in said)
    return Cpu(next(filter(None, names), "") or board or family, _cores(root, processors) or threads, threads, family)


def _cores(root: Path, processors: list[dict[str, str]]) -> int:
    """Return how many cores the threads are on, 0 if nobody knows."""
    found = {
        (pci.read_text(path / "physical_package_id"), pci.read_text(path / "die_id"), pci.read_text(path / "core_id"))
        for path in root.glob("sys/devices/system/cpu/cpu[0-9]*/topology")
    }
    if not found:
        found = {(each["physical id"], "", each["core id"]) for each in processors if "core id" in each}
    return len(found)


def _details(root: Path, kernel: str) -> dict[str, str]:
    board = root / "sys/class/dmi/id"
    kilohertz = pci.read_text(root / "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")
    return {
        "kernel": kernel,
        "python": platform.python_version(),
        "board": " ".join(filter(None, (pci.read_text(board / "sys_vendor"), pci.read_text(board / "product_name")))),
        "bios": pci.read_text(board / "bios_version"),
        "cpu_max_clock": f"{int(kilohertz) // 1000} MHz" if kilohertz.isdecimal() else "",
        "cpu_governor": pci.read_text(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "nvidia_driver": pci.nvidia_driver(root),
    }
