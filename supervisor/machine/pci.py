"""AMD's and NVIDIA's devices on the PCI bus, as the kernel shows them under ``/sys`` and ``/proc``, and their product names.

The names come from the lists of numbers that a machine may have: AMD's of libdrm, and the one of all vendors (``pci.ids``).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

from protocol.messages.system_info import Gpu, Npu

_AMD: Final = "0x1002"
_AMD_PROCESSORS: Final = "0x1022"
_NVIDIA: Final = "0x10de"
_INTEL: Final = "0x8086"
_INTEL_INTEGRATED: Final = "0000:00:02.0"
"""Where the graphics of Intel's processors always are. They have no memory of their own."""
_NPUS: Final = {"0x1502": "XDNA", "0x17f0": "XDNA2", "0x17f1": "XDNA2"}
_INTEGRATED: Final = frozenset(
    {
        *("gfx902", "gfx909", "gfx90c", "gfx1013", "gfx1033", "gfx1035", "gfx1036", "gfx1037"),
        *("gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153"),
    }
)
"""Graphics that are part of a processor."""
_GRAPHICS_DRIVERS: Final = {_AMD: ("amdgpu",), _INTEL: ("i915", "xe"), _NVIDIA: ("nvidia",)}
_DRIVER: Final = re.compile(r"^NVRM version:.*?\s(\d+(?:\.\d+)+)\s", re.MULTILINE)
_MODEL: Final = re.compile(r"^Model:\s*(.+?)\s*$", re.MULTILINE)
_LARGEST: Final = 1 << 20
"""Bytes of a file of the kernel; ``cpuinfo`` is long if there are many processors."""
_PIECE: Final = 1 << 14
"""Bytes that are read at once: most files are shorter, and to get memory for the longest takes longer than reading."""
_VENDORS: Final = {_AMD: "AMD", _NVIDIA: "NVIDIA"}
_LISTS: Final = ("usr/share/misc/pci.ids", "usr/share/hwdata/pci.ids")


def read_text(path: Path | str) -> str:
    """Return the text of a file of the kernel, empty if there is none. Some are read each second, so it takes few calls."""
    text = b""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while len(text) < _LARGEST and (piece := os.read(file, _PIECE)):
                text += piece
        finally:
            os.close(file)
    except OSError:
        return ""
    return text.decode("utf-8", "replace").strip()


class PciDevice(NamedTuple):
    """A device of the bus."""

    path: Path
    vendor: str
    device: str
    revision: str
    kind: str
    """The class's first two bytes: ``0x0300`` is a display."""
    driver: str

    @property
    def is_gpu(self) -> bool:
        """Whether it is a display, a 3D controller or a processing accelerator."""
        return self.kind.startswith("0x03") or self.kind == "0x1200"


def devices(root: Path) -> list[PciDevice]:
    """Return the devices of AMD and NVIDIA, in the order of their addresses."""
    found = []
    for path in sorted(root.glob("sys/bus/pci/devices/*")):
        vendor = read_text(path / "vendor")
        if vendor in (_AMD, _AMD_PROCESSORS, _NVIDIA):
            fields = (read_text(path / name) for name in ("device", "revision", "class"))
            device, revision, kind = fields
            found.append(PciDevice(path, vendor, device, revision, kind=kind[:6], driver=_driver(path)))
    return found


def graphics_drivers(root: Path) -> set[str]:
    """Return the drivers in use that show the memory or the use of graphics cards: ``nvidia``, ``amdgpu``, ``i915``, ``xe``."""
    found = {
        driver
        for path in root.glob("sys/bus/pci/devices/*")
        if (driver := _driver(path)) in _GRAPHICS_DRIVERS.get(read_text(path / "vendor"), ())
        and path.name != _INTEL_INTEGRATED
    }
    nvidia = (
        "proc/driver/nvidia",
        "sys/module/nvidia",
        "dev/dxg",
    )  # a container may hide the bus, and Windows has none
    return found | ({"nvidia"} if any((root / file).exists() for file in nvidia) else set())


def _driver(path: Path) -> str:
    try:
        return (path / "driver").readlink().name
    except OSError:
        return ""


def amd_gpus(root: Path, found: list[PciDevice], kernel: str) -> list[Gpu]:
    """Return AMD's graphics cards. A driver that is part of the kernel has the kernel's version."""
    families = _kfd(root)
    gpus = []
    for each in found:
        if each.vendor == _AMD and each.is_gpu:
            family = families.get(each.path.name) or _graphics_ip(each.path)
            version = read_text(root / "sys/module" / each.driver / "version") or kernel if each.driver else ""
            gpus.append(
                Gpu(
                    address=each.path.name,
                    name=read_text(each.path / "product_name")
                    or device_name(root, each.vendor, each.device, each.revision),
                    family=family,
                    memory=_number(each.path / "mem_info_vram_total"),
                    driver=each.driver,
                    driver_version=version,
                    integrated=_is_integrated(each.path, family),
                )
            )
    return gpus


def _number(path: Path) -> int:
    text = read_text(path)
    return int(text) if text.isdecimal() else 0


def _is_integrated(path: Path, family: str) -> bool:
    if (path / "board_info").exists():  # the driver only makes it for cards
        return False
    return family in _INTEGRATED or (not family and read_text(path / "mem_info_vram_vendor") in ("", "unknown"))


def _kfd(root: Path) -> dict[str, str]:
    """Return PCI address → ``gfx…``, as the compute driver shows it."""
    found = {}
    for path in root.glob("sys/class/kfd/kfd/topology/nodes/*/properties"):
        properties = dict(line.split()[:2] for line in read_text(path).splitlines() if len(line.split()) >= 2)
        number = properties.get("gfx_target_version", "0")
        location, domain = properties.get("location_id", ""), properties.get("domain", "0")
        if number.isdecimal() and int(number) and location.isdecimal() and domain.isdecimal():
            bits = int(location)
            address = f"{int(domain):04x}:{bits >> 8 & 255:02x}:{bits >> 3 & 31:02x}.{bits & 7}"
            found[address] = _gfx(int(number) // 10000, int(number) // 100 % 100, int(number) % 100)
    return found


def _graphics_ip(path: Path) -> str:
    """Return ``gfx…`` from the versions of the chip's parts, which newer drivers show without the compute driver."""
    parts = path / "ip_discovery/die/0/GC/0"
    numbers = [read_text(parts / name) for name in ("major", "minor", "revision")]
    return _gfx(*map(int, numbers)) if all(number.isdecimal() for number in numbers) else ""


def _gfx(major: int, minor: int, revision: int) -> str:
    return f"gfx{major}{minor:x}{revision:x}"


def nvidia_driver(root: Path) -> str:
    """Return the version of NVIDIA's driver, empty if it is not loaded."""
    found = _DRIVER.search(read_text(root / "proc/driver/nvidia/version") + "\n")
    return found[1] if found else read_text(root / "sys/module/nvidia/version")


def nvidia_gpus(root: Path, found: list[PciDevice]) -> list[Gpu]:
    """Return NVIDIA's graphics cards. Only NVIDIA's own tool shows their memory."""
    version = nvidia_driver(root)
    in_proc = {path.name: path for path in root.glob("proc/driver/nvidia/gpus/*")}
    on_bus = {each.path.name: each for each in found if each.vendor == _NVIDIA and each.is_gpu}
    gpus = []
    for address in sorted({*in_proc, *on_bus}):  # a container may hide the bus
        each = on_bus.get(address)
        model = _MODEL.search(read_text(in_proc[address] / "information")) if address in in_proc else None
        name = model[1] if model else device_name(root, each.vendor, each.device, each.revision) if each else ""
        driver = "nvidia" if address in in_proc or each is None else each.driver
        gpus.append(Gpu(address, name, driver=driver, driver_version=version if driver == "nvidia" else ""))
    return gpus


def npu(root: Path, found: list[PciDevice], kernel: str) -> Npu | None:
    """Return AMD's neural processor."""
    for each in found:
        if each.vendor == _AMD_PROCESSORS and (each.driver == "amdxdna" or each.device in _NPUS):
            version = read_text(root / "sys/module/amdxdna/version") or kernel if each.driver else ""
            name = read_text(each.path / "vbnv") or "AMD NPU"
            return Npu(name, _NPUS.get(each.device, ""), each.driver, version)
    return None


def device_name(root: Path, vendor: str, device: str, revision: str) -> str:
    """Return the product name of a card, empty if no list has it."""
    known = _amd(root, device, revision) if vendor == _AMD else ""
    return known or _listed(root, vendor, device, _VENDORS.get(vendor, vendor))


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def _digits(text: str) -> str:
    return re.escape(text.removeprefix("0x"))


def _amd(root: Path, device: str, revision: str) -> str:
    """Return the name from AMD's own list, which tells the revisions of a chip apart."""
    numbers = rf"{_digits(device)},\s*{_digits(revision)}"
    row = re.compile(rf"^{numbers},\s*(.+?)\s*$", re.MULTILINE | re.IGNORECASE)
    found = row.search(_read(root / "usr/share/libdrm/amdgpu.ids"))
    return found[1] if found and revision else ""


def _listed(root: Path, vendor: str, device: str, vendor_name: str) -> str:
    """Return the name in the list of all vendors: for ``AD102 [GeForce RTX 4090]``, it is in the brackets."""
    for path in _LISTS:
        _, _, of_vendor = _read(root / path).partition(f"\n{vendor.removeprefix('0x')}  ")
        block = re.split(r"\n[0-9a-f]{4}  ", of_vendor, maxsplit=1)[0]
        found = re.search(rf"^\t{_digits(device)}  (.+?)\s*$", block, re.MULTILINE)
        if found:
            product = re.search(r"\[(.+)\]", found[1])
            return f"{vendor_name} {product[1] if product else found[1]}"
    return ""
