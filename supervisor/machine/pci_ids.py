"""Names of graphics cards by their PCI numbers, from the lists that most systems install."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_AMD: Final = "0x1002"
_VENDORS: Final = {_AMD: "AMD", "0x10de": "NVIDIA"}
_LISTS: Final = ("usr/share/misc/pci.ids", "usr/share/hwdata/pci.ids")


def device_name(root: Path, vendor: str, device: str, revision: str) -> str:
    """Return the product name of a card, empty if no list has it."""
    known = _amd(root, device, revision) if vendor == _AMD else ""
    return known or _listed(root, vendor, device, _VENDORS.get(vendor, vendor))


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def _number(text: str) -> str:
    return re.escape(text.removeprefix("0x"))


def _amd(root: Path, device: str, revision: str) -> str:
    """Return the name from AMD's own list, which tells the revisions of a chip apart."""
    numbers = rf"{_number(device)},\s*{_number(revision)}"
    row = re.compile(rf"^{numbers},\s*(.+?)\s*$", re.MULTILINE | re.IGNORECASE)
    found = row.search(_read(root / "usr/share/libdrm/amdgpu.ids"))
    return found[1] if found and revision else ""


def _listed(root: Path, vendor: str, device: str, vendor_name: str) -> str:
    """Return the name in the list of all vendors: for ``AD102 [GeForce RTX 4090]``, it is in the brackets."""
    for path in _LISTS:
        _, _, of_vendor = _read(root / path).partition(f"\n{vendor.removeprefix('0x')}  ")
        block = re.split(r"\n[0-9a-f]{4}  ", of_vendor, maxsplit=1)[0]
        found = re.search(rf"^\t{_number(device)}  (.+?)\s*$", block, re.MULTILINE)
        if found:
            product = re.search(r"\[(.+)\]", found[1])
            return f"{vendor_name} {product[1] if product else found[1]}"
    return ""
