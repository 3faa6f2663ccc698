"""A download job that only waits a moment for the supervisor to accept its result: ``python -m tests.workers.jobs.impatient_pull``."""

from __future__ import annotations

from typing import Final

from workers.jobs import job, pull

LONGEST_END_S: Final = 0.3

if __name__ == "__main__":
    job._LONGEST_END = LONGEST_END_S  # type: ignore[misc]
    pull.main()
