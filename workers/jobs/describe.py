"""The job process that reads what model files say of themselves: ``python -m workers.jobs.describe``."""

from __future__ import annotations

from protocol.messages.model_details import Described, FileFacts, StartDescription
from workers.files.description import describe
from workers.jobs.job import JobProcess


def describe_all(order: StartDescription) -> Described:
    """Read every file; one that cannot be read has empty facts."""
    return Described([_described(path) for path in order.paths])


def _described(path: str) -> FileFacts:
    try:
        return describe(path)
    except Exception:  # noqa: BLE001 - files come from anywhere; a load says what is wrong with one
        return FileFacts()


def main() -> None:
    """Run one job to its end."""
    job = JobProcess()
    job.carry_out(StartDescription, describe_all)
    job.run()


if __name__ == "__main__":
    main()
