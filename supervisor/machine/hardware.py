"""This machine: memory and cores by psutil, names and devices from ``/proc`` and ``/sys``, read once, at the start; the memory of a process."""

from __future__ import annotations

import platform
import re
from functools import cache
from pathlib import Path
from typing import Final

import psutil

from protocol.messages.system_info import Cpu, MachineInfo
from supervisor.machine import pci

_CPUINFO: Final = re.compile(r"^([^\t:]+?)\s*:\s*(.*)$", re.MULTILINE)
_NAME_KEYS: Final = ("model name", "cpu model", "Hardware", "Model")
"""Where architectures have the processor's name in ``/proc/cpuinfo``, in the order to try."""
_PRETTY: Final = re.compile(r'^PRETTY_NAME="?([^"\n]*)"?', re.MULTILINE)


@cache
def read_machine(root: str) -> MachineInfo:
    """Return this machine, with the devices and names that ``proc``, ``sys``, ``etc`` and ``usr`` in ``root`` show."""
    return read_machine_from(Path(root))


def read_machine_from(root: Path) -> MachineInfo:
    """Read the machine. What cannot be read is left empty; nothing raises."""
    kernel = pci.read_text(root / "proc/sys/kernel/osrelease") or platform.release()
    devices = pci.devices(root)
    return MachineInfo(
        system=_system(root, kernel),
        memory=psutil.virtual_memory().total,
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


def _cpu(root: Path) -> Cpu:
    family = platform.machine()
    facts = _CPUINFO.findall(pci.read_text(root / "proc/cpuinfo"))
    board = pci.read_text(root / "proc/device-tree/model").rstrip("\0")  # if processors have no names, boards do
    name = next((value for wanted in _NAME_KEYS for key, value in facts if key == wanted and value), "")
    threads = psutil.cpu_count() or 1
    return Cpu(name or board or family, psutil.cpu_count(logical=False) or threads, threads, family)


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
