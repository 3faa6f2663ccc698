"""The memory of AMD's and Intel's graphics by the files of the kernel's drivers: amdgpu, i915 and xe.

amdgpu shows what a card has and uses. xe shows what it has; what is used there are the parts of all processes whose
``fdinfo`` may be read. Only Intel's own builds of i915 show how much memory a card has and how much is free.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from protocol.messages.devices import DeviceReading
from protocol.models.memory import HOST

_AMD, _INTEL = "0x1002", "0x8086"
_INTEL_INTEGRATED: Final = "0000:00:02.0"
"""Where the graphics of Intel's processors always are."""
_MEMORY: Final = re.compile(r"^drm-(resident|memory)-([a-z]+)\d*:\s*(\d+)\s*([KMG]iB)?\s*$", re.MULTILINE)
_OF_CARD: Final = frozenset({"vram", "local"})
_OF_HOST: Final = frozenset({"gtt", "system"})
_FIELD: Final = re.compile(r"^(drm-pdev|drm-client-id):\s*(\S+)\s*$", re.MULTILINE)
_UNITS: Final = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_LARGEST: Final = 1 << 16


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _number(path: Path) -> int:
    text = _text(path)
    return int(text) if text.isdecimal() else 0


class GraphicsCards:
    """The cards, read again and again: how busy Intel's are is what they did since the last time."""

    def __init__(self, machine: Path, own: Path = Path("/")) -> None:
        """``machine`` has the ``sys`` with the devices, ``own`` the ``proc`` with the processes as this one sees them."""
        self._machine, self._own = machine, own
        self._idle: dict[Path, tuple[float, int]] = {}
        """File → when it was read, and the milliseconds in which that part of the card had been idle."""

    def read(self, integrated: Collection[str] = (), wanted: Iterable[int] = ()) -> list[DeviceReading]:
        """Read all cards. ``integrated``: addresses of AMD's graphics in processors. ``wanted``: processes to look at."""
        found = []
        cards = [(path, _text(path / "vendor"), _driver(path)) for path in self._devices()]
        intel = any(vendor == _INTEL and path.name != _INTEL_INTEGRATED for path, vendor, _ in cards)
        shared = {
            path.name
            for path, vendor, _ in cards
            if (vendor == _INTEL and path.name == _INTEL_INTEGRATED)
            or (vendor == _AMD and path.name in integrated and _uses_host(path))
        }
        pids = None if intel else _with_children(self._own, wanted)
        used = process_memory(self._own, pids, shared) if cards else {}
        for path, vendor, driver in cards:
            processes = {pid: places[path.name] for pid, places in used.items() if path.name in places}
            if vendor == _AMD and driver == "amdgpu":
                found.append(_amd(path, processes, shared=path.name in shared))
            elif vendor == _INTEL and driver in ("i915", "xe"):
                found.append(self._intel(path, driver, processes))
        return found

    def _devices(self) -> list[Path]:
        """Return the display controllers and accelerators, in the order of their addresses."""
        paths = sorted(self._machine.glob("sys/bus/pci/devices/*"))
        return [path for path in paths if _text(path / "class").startswith(("0x03", "0x1200"))]

    def _intel(self, path: Path, driver: str, processes: dict[int, int]) -> DeviceReading:
        total = sum(_number(file) for file in path.glob("tile*/physical_vram_size_bytes"))
        total = total or sum(_number(file) for file in path.glob("drm/card*/lmem_total_bytes"))
        busy = self._busy(path)
        address = path.name
        if not total and address == _INTEL_INTEGRATED:
            return DeviceReading("intel", address, HOST, used_percent=busy, processes=processes)
        if not total:
            problem = f"The memory of {address} is unknown: the driver {driver} does not show it"
            return DeviceReading("intel", address, address, used_percent=busy, processes=processes, problem=problem)
        shown = [int(text) for file in path.glob("drm/card*/lmem_avail_bytes") if (text := _text(file)).isdecimal()]
        free = sum(shown) if shown else max(0, total - sum(processes.values()))
        return DeviceReading("intel", address, address, total=total, free=free, used_percent=busy, processes=processes)

    def _busy(self, path: Path) -> float | None:
        """Return the percentage of time since the last reading in which the busiest part of a card was not idle."""
        now, busiest = time.monotonic(), None
        files = (*path.glob("tile*/gt*/gtidle/idle_residency_ms"), *path.glob("drm/card*/gt/gt*/rc6_residency_ms"))
        for file in files:
            idle = _number(file)
            before = self._idle.get(file)
            self._idle[file] = (now, idle)
            if before is not None and now > before[0]:
                share = 1 - (idle - before[1]) / 1000 / (now - before[0])
                busiest = max(busiest or 0.0, min(100.0, max(0.0, 100 * share)))
        return busiest


def _driver(path: Path) -> str:
    try:
        return (path / "driver").readlink().name
    except OSError:
        return ""


def _uses_host(path: Path) -> bool:
    """Return whether most of what AMD's graphics in a processor may use is the host's, and not set aside for them."""
    of_host = _number(path / "mem_info_gtt_total")
    return not of_host or _number(path / "mem_info_vram_total") <= of_host


def _amd(path: Path, processes: dict[int, int], *, shared: bool) -> DeviceReading:
    total, used = _number(path / "mem_info_vram_total"), _number(path / "mem_info_vram_used")
    busy = _text(path / "gpu_busy_percent")
    return DeviceReading(
        vendor="amd",
        address=path.name,
        place=HOST if shared else path.name,
        uuid=_text(path / "unique_id"),
        name=_text(path / "product_name"),
        total=0 if shared else total,
        free=0 if shared else max(0, total - used),
        used_percent=float(busy) if busy.isdecimal() else None,
        processes=processes,
    )


# ---- what processes use --------------------------------------------------------------------------------------------


def process_memory(root: Path, pids: Iterable[int] | None, shared: Collection[str] = ()) -> dict[int, dict[str, int]]:
    """Return pid → card → bytes of its memory that the process uses.

    ``pids``: None for all processes that may be read. ``shared``: cards whose memory is the host's. What several descriptors
    show of the same client counts once.
    """
    found = {}
    for pid in _all_pids(root) if pids is None else pids:
        clients: dict[tuple[str, str], int] = {}
        for text in _descriptors(root / "proc" / str(pid)):
            fields = dict(_FIELD.findall(text))
            if "drm-pdev" in fields:
                client = fields["drm-pdev"], fields.get("drm-client-id", "")
                kinds = _OF_HOST if client[0] in shared else _OF_CARD
                clients[client] = max(clients.get(client, 0), _client_memory(text, kinds))
        places: dict[str, int] = {}
        for (card, _), size in clients.items():
            if size:
                places[card] = places.get(card, 0) + size
        if places:
            found[pid] = places
    return found


def _client_memory(text: str, kinds: Collection[str]) -> int:
    """Return the memory of these kinds that one open device uses. amdgpu says ``memory`` and, later, ``resident`` for the same."""
    sizes = {"resident": 0, "memory": 0}
    for word, kind, number, unit in _MEMORY.findall(text):
        if kind in kinds:
            sizes[word] += int(number) * _UNITS[unit]
    return sizes["resident"] or sizes["memory"]


def _all_pids(root: Path) -> list[int]:
    return [int(path.name) for path in (root / "proc").iterdir() if path.name.isdecimal()]


def _descriptors(process: Path) -> list[str]:
    """Return what the kernel says of a process's open devices; nothing if it has ended, or belongs to another user."""
    try:
        opened = [link.name for link in (process / "fd").iterdir() if _is_device(link)]
    except OSError:
        return []
    return [_text(process / "fdinfo" / number) for number in opened]


def _is_device(link: Path) -> bool:
    try:
        return str(link.readlink()).startswith("/dev/dri/")
    except OSError:
        return False


def _with_children(root: Path, pids: Iterable[int]) -> list[int]:
    """Return these processes and all that they have started."""
    found, rest = [], list(pids)
    while rest:
        pid = rest.pop()
        found.append(pid)
        for file in (root / "proc" / str(pid)).glob("task/*/children"):
            rest += [int(child) for child in _text(file).split() if child.isdecimal()]
    return found
