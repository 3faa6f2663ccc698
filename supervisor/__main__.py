"""``python -m supervisor``: the fork server, which the keeper of ``lemonbus serve`` starts (``supervisor/keeper/``)."""

from __future__ import annotations

import os
import sys

from protocol.runtime import memory
from supervisor.keeper import channel
from supervisor.keeper.channel import Channel


def main() -> int:
    """Import everything, and fork supervisors until the keeper ends."""
    descriptor = os.environ.pop(channel.VARIABLE, "")
    if not descriptor:
        os.write(2, b"lemonbus: this process is started by the keeper: use `lemonbus serve`\n")
        return 2
    keeper = Channel.of_descriptor(int(descriptor))
    memory.pause_gc()
    from supervisor.lifecycle import fork_server  # noqa: PLC0415 - takes long; the check above does not wait for it

    fork_server.run(keeper)
    return 0


if __name__ == "__main__":
    sys.exit(main())
