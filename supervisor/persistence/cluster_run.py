"""Which run of a server with a cluster this is, and which agents it has: on the disk as long as the run lasts.

When the machine of the head dies, the run goes on for its nodes: the next start has the same boot id, and takes over
what lives there within the grace. A clean end forgets the run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from protocol import small_files
from protocol.failures import DECODE_ERRORS
from protocol.runtime import logs
from supervisor.persistence.state_files import FinishWrite, write_draft

FILE: Final = "cluster_run.json"

log = logs.get_logger()


class ClusterRun(msgspec.Struct, frozen=True):
    """One run. It has no file before its first node joins."""

    boot: str
    agents: dict[str, str] = {}
    """Node → its agent."""


def read(state_dir: Path) -> ClusterRun | None:
    """Return the run that has not ended in order; None if there is none, or if its file is damaged."""
    path = state_dir / FILE
    try:
        return msgspec.json.decode(small_files.read_small_file(path), type=ClusterRun)
    except FileNotFoundError:
        return None
    except (OSError, *DECODE_ERRORS) as problem:
        log.warning("what ran on other nodes is not taken over", file=FILE, detail=f"{path}: {problem}")
        return None


def write(state_dir: Path, run: ClusterRun, finish: FinishWrite) -> None:
    """Write the run. If that fails, the log says so."""
    path = state_dir / FILE
    try:
        finish(write_draft(path, msgspec.json.encode(run)), path, lambda _problem: None)
    except OSError as problem:
        log.warning("a state file could not be written", reason=problem.strerror, detail=str(problem))


def forget(state_dir: Path) -> None:
    """Forget the run: it has ended in order."""
    (state_dir / FILE).unlink(missing_ok=True)
