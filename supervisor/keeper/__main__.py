"""``python -S -m supervisor.keeper``: one server, from its lock to the end of its last process.

``lemonbus serve`` becomes this process, with the settings in its environment. Exits 0 after an orderly shutdown, 1 when
the server cannot start or go on, 2 for bad settings.
"""

from __future__ import annotations

import os
import sys

from supervisor.keeper import process_tree
from supervisor.keeper.error_output import print_line
from supervisor.keeper.keeper import Keeper
from supervisor.keeper.restart_policy import EXIT_FAILED

LAST_STANDARD_STREAM = 2


def main() -> int:
    """Run the server; return the exit code."""
    process_tree.set_name("lemonbus-keeper")
    _open_standard_streams()
    if not os.path.isdir("/proc/self"):
        print_line("/proc is not mounted (in a chroot or container): the server needs it to find its processes")
        return EXIT_FAILED
    try:
        keeper = Keeper(os.environ)
    except (OSError, ImportError) as problem:
        print_line(f"orphans cannot be adopted on this system: {problem}")
        return EXIT_FAILED
    return keeper.run()


def _open_standard_streams() -> None:
    """Open the standard streams that are closed, so that no socket or file gets the number of stderr, and with it the log."""
    while (descriptor := os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)) <= LAST_STANDARD_STREAM:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main())
