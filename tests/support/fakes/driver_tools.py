"""Stand-ins for the vendors' tools, on a PATH of their own: they answer like the real ones, or not at all."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Final

import msgspec

NVIDIA: Final = "NVIDIA GeForce RTX 4090, 24564, 550.54.14, 00000000:41:00.0, 8.9\n"
ROCM: Final = {
    "card0": {
        "Card Series": "AMD Radeon RX 7900 XTX",
        "Card Model": "0x744c",
        "VRAM Total Memory (B)": "25753026560",
        "GFX Version": "gfx1100",
        "PCI Bus": "0000:03:00.0",
    },
    "system": {"Driver version": "6.8.5"},
}
ROCM_JSON: Final = msgspec.json.encode(ROCM).decode()
XRT: Final = """
-----------------------------
[0000:c5:00.1] : RyzenAI-npu4
-----------------------------
Platform
  Name                   : RyzenAI-npu4
  Power Mode             : Performance
"""


def put(folder: Path, name: str, value: str = "", *, status: int = 0, instead: str = "") -> None:
    """Write an executable that prints ``says`` and notes that it ran; ``instead``: shell lines that run first."""
    folder.mkdir(exist_ok=True)
    script = folder / name
    lines = ["#!/bin/sh", f"echo run >> {shlex.quote(str(folder / name))}.runs", instead]
    script.write_text("\n".join([*lines, f"printf %s {shlex.quote(value)}", f"exit {status}", ""]))
    script.chmod(0o755)


def runs(folder: Path, name: str) -> int:
    """How often a stand-in was run."""
    noted = folder / f"{name}.runs"
    return noted.read_text().count("run") if noted.exists() else 0


def path(folder: Path) -> str:
    """A PATH with only the stand-ins and this Python, so that no tool of this machine is found."""
    return os.pathsep.join([str(folder), str(Path(sys.executable).parent)])
