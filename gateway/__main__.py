"""``python -m gateway``: the gateway, started by the supervisor."""

from __future__ import annotations

from protocol.runtime import memory


def main() -> None:
    """Import everything, and run the gunicorn master."""
    memory.pause_gc()
    from gateway.server import gunicorn_master  # noqa: PLC0415 - only now: see the line above

    gunicorn_master.main()


if __name__ == "__main__":
    main()
