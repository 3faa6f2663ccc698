"""The version of an installed Python package, read off the names of folders: importlib.metadata is slow to import."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Final

UNKNOWN: Final = "unknown"
_INFO: Final = ".dist-info"


def package_version(module: str) -> str:
    """Return the version of the distribution that has a module: empty if it is not installed, or :data:`UNKNOWN`.

    Some distributions have a longer name than their module.
    """
    found = importlib.util.find_spec(module) if module else None
    if found is None:
        return ""
    for folder in found.submodule_search_locations or []:
        for info in sorted(Path(folder).parent.glob(f"{module}*-*{_INFO}")):
            return info.name.removesuffix(_INFO).rpartition("-")[2]
    return UNKNOWN
