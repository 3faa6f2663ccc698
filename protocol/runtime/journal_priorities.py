"""Priorities for systemd's journal, which reads one before each line of a service's stderr (sd-daemon(3)).

The keeper imports this module, so it uses the standard library alone, without ``typing``, which costs memory.
"""

from __future__ import annotations

import os

_VARIABLE = "JOURNAL_STREAM"
"""``DEVICE:INODE`` of the stream that systemd gave to the service. A child's stderr may be another one."""
PRIORITIES = {
    "trace": b"<7>",
    "debug": b"<7>",
    "info": b"<6>",
    "warning": b"<4>",
    "error": b"<3>",
    "critical": b"<2>",
}
"""Level → the prefix of a line; the journal removes it."""


def stderr_is_journal() -> bool:
    """Return whether this process writes its stderr to the journal itself."""
    stream = os.environ.get(_VARIABLE)
    if not stream:
        return False
    try:
        status = os.fstat(2)
    except OSError:
        return False
    return stream == f"{status.st_dev}:{status.st_ino}"
