"""``python -m workers``: one worker, started by the supervisor."""

from __future__ import annotations

from protocol.runtime import memory


def main() -> None:
    """Import everything, and run the worker."""
    memory.pause_gc()
    from workers.worker import main as worker  # noqa: PLC0415 - only now: see the line above

    worker.main()


if __name__ == "__main__":
    main()
