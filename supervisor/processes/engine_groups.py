"""The control groups of engines: allowed at the start, and removed when the workers that made them have ended.

A worker removes its own. Those of a worker that was killed, or of a server that is gone, are found here.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from protocol.runtime.control_groups import (
    CONTROLLERS,
    ENGINE_PREFIX,
    enable_controllers,
    parent_of_engines,
    worker_of,
)
from protocol.runtime.loop import Loop

INTERVAL_S: Final = 10.0


def allow(loop: Loop) -> None:
    """Let engines have groups where that is possible, and remove old ones now and at regular intervals."""
    enable_controllers()
    remove_old()
    loop.every(INTERVAL_S, remove_old)


def remove_old(root: Path = Path("/")) -> None:
    """Remove the groups of workers that have ended, if no process is left in them."""
    for controller in CONTROLLERS:
        parent = parent_of_engines(controller, root)
        for group in parent.path.glob(f"{ENGINE_PREFIX}*") if parent else ():
            worker = worker_of(group)
            if worker and not _exists(worker):
                with contextlib.suppress(OSError):
                    group.rmdir()


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
