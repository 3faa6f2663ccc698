"""The job process that looks at the machine: ``python -m workers.jobs.probe``.

It asks the makers' tools and lists the Python packages, tells the supervisor, and ends.
"""

from __future__ import annotations

import importlib.metadata
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from protocol import logs
from protocol.machine import Probed
from protocol.staff import Welcome
from workers.jobs import smi
from workers.jobs.errand import Errand

T = TypeVar("T")
_SLOWEST: Final = 3 * smi.SECONDS


def packages() -> list[str]:
    """Return ``NAME==VERSION`` of every package that this Python finds, each name once, sorted."""
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        if name and name.lower() not in found:  # the first one on the path is the one that is imported
            found[name.lower()] = f"{name}=={distribution.version}"
    return [found[name] for name in sorted(found)]


def probe() -> Probed:
    """Ask everybody at once."""
    troubles: list[str] = []

    def asked(question: Callable[[], T], nothing: T) -> T:
        try:
            return question()
        except smi.ToolError as problem:
            troubles.append(str(problem))
            return nothing

    with ThreadPoolExecutor(4) as pool:
        nvidia = pool.submit(asked, smi.nvidia, [])
        amd = pool.submit(asked, smi.amd, [])
        mode = pool.submit(asked, smi.npu_power_mode, "")
        flm = pool.submit(asked, smi.flm_trouble, "")
        listed = packages()
        return Probed(
            amd.result(_SLOWEST),
            nvidia.result(_SLOWEST),
            mode.result(_SLOWEST),
            listed,
            flm=flm.result(_SLOWEST),
            troubles=troubles,
        )


def look() -> Probed | None:
    """Ask everybody; None if even that went wrong, which the log tells."""
    try:
        return probe()
    except Exception:  # noqa: BLE001 - whatever it was, the supervisor goes by the kernel's word
        logs.get().error("looking at the machine failed", detail=traceback.format_exc())
        return None


def main() -> None:
    """Run one job to its end."""
    errand = Errand()
    errand.carry_out(Welcome, lambda _welcome: look(), lambda found: errand.end(found) if found else errand.loop.stop())
    errand.run()


if __name__ == "__main__":
    main()
