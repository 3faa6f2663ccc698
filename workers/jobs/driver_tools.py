"""The makers' own tools, asked about their devices: what to run, and what their output says. Reading is pure."""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess
from typing import Any, Final

import msgspec

from protocol.messages.system_info import Gpu
from protocol.wire.decoding import DECODE_ERRORS

SECONDS: Final = 10.0
"""A tool that has not answered by then will not: its driver hangs, or wakes a card too slowly for us."""
NVIDIA: Final = ("name", "memory.total", "driver_version", "pci.bus_id")
NVIDIA_NEWER: Final = (*NVIDIA, "compute_cap")
ROCM: Final = ("--showproductname", "--showmeminfo", "vram", "--showdriverversion", "--showbus", "--json")
XRT: Final = ("examine", "-r", "platform")
_POWER_MODE: Final = re.compile(r"^\s*Power Mode\s*:\s*(\S.*?)\s*$", re.MULTILINE | re.IGNORECASE)
_VERSION: Final = re.compile(r"\d+(?:\.\d+)+[\w.+-]*")
_UNKNOWN: Final = frozenset({"", "n/a", "[n/a]", "[not supported]", "unknown"})


_FLM: Final = {
    "amd_device_found": "it finds no NPU",
    "kernel_ok": "the kernel or its NPU driver is too old",
    "npu_driver_ok": "the NPU's driver is too old",
    "all_fw_ok": "the NPU's firmware is too old",
    "enough_cols": "the NPU is too small",
    "memlock_ok": "too little memory may be locked (`ulimit -l`)",
}
"""What ``flm validate`` looks at → what is wrong if it is false."""


class ToolError(Exception):
    """A tool is there and gave no answer."""


def run(tool: str, *arguments: str) -> str | None:
    """Return what a tool prints, None if there is none; raises :class:`ToolError`."""
    done = _done(tool, *arguments)
    if done is not None and done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip())[-300:]
        raise ToolError(f"{tool} ended with {done.returncode}: {said}")
    return done.stdout if done else None


def _done(tool: str, *arguments: str) -> subprocess.CompletedProcess[str] | None:
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
    """Ask ``nvidia-smi``; older ones do not know all the questions."""
    try:
        return _nvidia(NVIDIA_NEWER)
    except ToolError as problem:
        if "compute_cap" not in str(problem):
            raise
        return _nvidia(NVIDIA)


def _nvidia(fields: tuple[str, ...]) -> list[Gpu]:
    said = run("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
    return nvidia_gpus(said or "")


def nvidia_gpus(said: str) -> list[Gpu]:
    """Read rows of name, MiB, driver version, address and, where it is told, compute capability."""
    found = []
    for row in csv.reader(io.StringIO(said), skipinitialspace=True):
        cells = ["" if cell.strip().lower() in _UNKNOWN else cell.strip() for cell in row]
        if len(cells) >= 4 and cells[3]:
            name, mebibytes, version, address = cells[:4]
            family = f"sm_{cells[4].replace('.', '')}" if len(cells) > 4 and cells[4] else ""
            memory = int(mebibytes) << 20 if mebibytes.isdecimal() else 0
            found.append(Gpu(_address(address), name, family, memory, "nvidia", version))
    return found


def _address(said: str) -> str:
    """Return ``00000000:C5:00.0`` as the kernel writes it: ``0000:c5:00.0``."""
    domain, _, rest = said.lower().partition(":")
    return f"{domain[-4:]:>04}:{rest}"


def amd() -> list[Gpu]:
    """Ask ``rocm-smi``."""
    return amd_gpus(run("rocm-smi", *ROCM) or "{}")


def amd_gpus(said: str) -> list[Gpu]:
    """Read rocm-smi's JSON: an object for each card, whose keys have changed their case over the years."""
    try:
        cards: dict[str, dict[str, Any]] = msgspec.json.decode(
            said[said.find("{") :], type=dict[str, dict[str, Any]]
        )  # it may warn before it speaks
    except DECODE_ERRORS as problem:
        raise ToolError(f"rocm-smi speaks no JSON that we know: {problem}") from None
    lower = {card: {key.lower(): str(value) for key, value in told.items()} for card, told in cards.items()}
    version = lower.pop("system", {}).get("driver version", "")
    found = []
    for told in lower.values():
        if address := told.get("pci bus", ""):
            names = (told.get(key, "") for key in ("card series", "card model", "device name"))
            name = next((each for each in names if each.lower() not in _UNKNOWN and not each.startswith("0x")), "")
            size = told.get("vram total memory (b)", "")
            memory = int(size) if size.isdecimal() else 0
            family = told.get("gfx version", "") if told.get("gfx version", "").startswith("gfx") else ""
            found.append(Gpu(_address(address), name, family, memory, "amdgpu", version))
    return found


def npu_power_mode() -> str:
    """Ask ``xrt-smi`` how the neural processor is set, empty if it does not say."""
    found = _POWER_MODE.search(run("xrt-smi", *XRT) or "")
    return found[1] if found else ""


def flm_version() -> str:
    """Ask ``flm`` which one it is, empty if there is none or it does not say."""
    done = _done("flm", "version", "--json")  # older ones answer in words
    found = _VERSION.search(done.stdout) if done else None
    return found[0] if found else ""


def flm_problem() -> str:
    """Ask ``flm`` whether it could run here; return what is wrong, empty if nothing is or there is no ``flm``."""
    done = _done("flm", "validate", "--json")  # it ends with 1 where it cannot
    if done is None:
        return ""
    try:
        said = msgspec.json.decode(done.stdout[max(0, done.stdout.find("{")) :], type=dict[str, Any])
    except DECODE_ERRORS as problem:
        raise ToolError(f"flm speaks no JSON that we know: {problem}") from None
    if said.get("ready") is not False:
        return ""
    wrong = [words for check, words in _FLM.items() if said.get(check) is False]
    return f"flm cannot use the NPU: {'; '.join(wrong) or 'see `flm validate`'}."
