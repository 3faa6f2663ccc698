"""Runs the tools of device vendors (`nvidia-smi`, `rocm-smi`, `xrt-smi`) and parses their output. Parsing is pure."""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess
from typing import Any, Final

import msgspec

from protocol.failures import DECODE_ERRORS
from protocol.messages.system_info import Gpu

SECONDS: Final = 10.0
"""Timeout of a tool: its driver may hang, or wake a device too slowly."""
NVIDIA: Final = ("name", "memory.total", "driver_version", "pci.bus_id")
NVIDIA_NEWER: Final = (*NVIDIA, "compute_cap")
ROCM: Final = ("--showproductname", "--showmeminfo", "vram", "--showdriverversion", "--showbus", "--json")
XRT: Final = ("examine", "-r", "platform")
_POWER_MODE: Final = re.compile(r"^\s*Power Mode\s*:\s*(\S.*?)\s*$", re.MULTILINE | re.IGNORECASE)
_UNKNOWN: Final = frozenset({"", "n/a", "[n/a]", "[not supported]", "unknown"})


class ToolError(Exception):
    """A tool is installed but gave no usable answer."""


def run(tool: str, *arguments: str) -> str | None:
    """Return what a tool prints, None if it is not installed; raises :class:`ToolError`."""
    done = run_unchecked(tool, *arguments)
    if done is not None and done.returncode != 0:
        output = (done.stderr.strip() or done.stdout.strip())[-300:]
        raise ToolError(f"{tool} ended with {done.returncode}: {output}")
    return done.stdout if done else None


def run_unchecked(tool: str, *arguments: str) -> subprocess.CompletedProcess[str] | None:
    """Run a tool; return how it ended, None if it is not installed.

    Raises :class:`ToolError` if it does not end in time.
    """
    program = shutil.which(tool)
    if program is None:
        return None
    try:
        return subprocess.run(
            [program, *arguments],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=SECONDS,
            check=False,
            text=True,
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        raise ToolError(f"{tool} did not answer within {SECONDS:g} s") from None
    except OSError as problem:
        raise ToolError(f"{tool} cannot be run: {problem.strerror}") from None


def nvidia() -> list[Gpu]:
    """Ask ``nvidia-smi``; older versions do not have all the fields."""
    try:
        return _nvidia(NVIDIA_NEWER)
    except ToolError as problem:
        if "compute_cap" not in str(problem):
            raise
        return _nvidia(NVIDIA)


def _nvidia(fields: tuple[str, ...]) -> list[Gpu]:
    output = run("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
    return nvidia_gpus(output or "")


def nvidia_gpus(output: str) -> list[Gpu]:
    """Read rows of name, MiB, driver version, address and, if present, compute capability."""
    found = []
    for row in csv.reader(io.StringIO(output), skipinitialspace=True):
        cells = ["" if cell.strip().lower() in _UNKNOWN else cell.strip() for cell in row]
        if len(cells) >= 4 and cells[3]:
            name, mebibytes, version, address = cells[:4]
            family = f"sm_{cells[4].replace('.', '')}" if len(cells) > 4 and cells[4] else ""
            memory = int(mebibytes) << 20 if mebibytes.isdecimal() else 0
            found.append(Gpu(_address(address), name, family, memory, "nvidia", version))
    return found


def _address(written: str) -> str:
    """Return ``00000000:C5:00.0`` in the kernel's form: ``0000:c5:00.0``."""
    domain, _, rest = written.lower().partition(":")
    return f"{domain[-4:]:>04}:{rest}"


def amd() -> list[Gpu]:
    """Ask ``rocm-smi``."""
    return amd_gpus(run("rocm-smi", *ROCM) or "{}")


def amd_gpus(output: str) -> list[Gpu]:
    """Read rocm-smi's JSON: an object for each card; versions differ in the case of its keys."""
    try:
        cards: dict[str, dict[str, Any]] = msgspec.json.decode(
            output[output.find("{") :], type=dict[str, dict[str, Any]]
        )  # warnings may come before the JSON
    except DECODE_ERRORS as problem:
        raise ToolError(f"rocm-smi printed JSON of an unknown form: {problem}") from None
    lower = {
        card: {key.lower(): str(value) for key, value in fields_of_card.items()}
        for card, fields_of_card in cards.items()
    }
    version = lower.pop("system", {}).get("driver version", "")
    found = []
    for fields_of_card in lower.values():
        if address := fields_of_card.get("pci bus", ""):
            names = (fields_of_card.get(key, "") for key in ("card series", "card model", "device name"))
            name = next((each for each in names if each.lower() not in _UNKNOWN and not each.startswith("0x")), "")
            size = fields_of_card.get("vram total memory (b)", "")
            memory = int(size) if size.isdecimal() else 0
            family = (
                fields_of_card.get("gfx version", "") if fields_of_card.get("gfx version", "").startswith("gfx") else ""
            )
            found.append(Gpu(_address(address), name, family, memory, "amdgpu", version))
    return found


def npu_power_mode() -> str:
    """Return the power mode of the NPU by ``xrt-smi``, empty if it does not report one."""
    found = _POWER_MODE.search(run("xrt-smi", *XRT) or "")
    return found[1] if found else ""
