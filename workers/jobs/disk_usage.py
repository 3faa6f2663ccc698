"""The job process that measures what the server has on the disk, and removes what nothing uses: ``python -m workers.jobs.disk_usage``."""

from __future__ import annotations

from protocol.runtime import memory

if __name__ == "__main__":
    memory.pause_gc()

import traceback
from collections import Counter
from typing import Final

from protocol.config.settings import Settings
from protocol.failures import Code, Failure, printable
from protocol.messages.disk_usage import DiskItem, DiskJobDone, DiskJobFailed, DiskReport, StartDiskJob
from workers.jobs.disk_contents.findings import find_all
from workers.jobs.disk_contents.removal import remove
from workers.jobs.job import JobProcess
from workers.prompt_cache.store import PromptCacheStore

_MAX_PATH_LENGTH: Final = 4096
"""Linux has no longer ones."""


def carry_out(settings: Settings, order: StartDiskJob) -> DiskJobDone | DiskJobFailed:
    """Measure, and remove if the order says so. Every error becomes the failure that is returned."""
    try:
        return DiskJobDone(report(settings, order))
    except Exception:  # noqa: BLE001 - the waiting callers must be answered after any error
        message = "the disk could not be examined"
        return DiskJobFailed(Failure(Code.INTERNAL, message, detail=traceback.format_exc()))


def report(settings: Settings, order: StartDiskJob) -> DiskReport:
    """Return what there is, the largest first, and what was removed."""
    found = find_all(settings, order)
    users = Counter(identity for each in found for identity in each.files.sizes)
    if order.only_unused:
        found = [each for each in found if each.unused]
    caches = PromptCacheStore(settings.cache_dir, settings.prompt_cache_bytes)
    items = []
    for each in sorted(found, key=lambda finding: (-finding.files.size, finding.name)):
        removable = order.remove and each.unused and not each.kept
        freed, kept = remove(each, caches) if removable else (0, each.kept)
        items.append(
            DiskItem(
                kind=each.kind,
                name=printable(each.name, _MAX_PATH_LENGTH),
                path=printable(str(each.path), _MAX_PATH_LENGTH),
                size=each.files.size,
                shared=sum(size for identity, size in each.files.sizes.items() if users[identity] > 1),
                unused=each.unused,
                removed=bool(removable) and not kept,
                freed=freed,
                kept=kept,
            )
        )
    sizes = {identity: size for each in found for identity, size in each.files.sizes.items()}
    return DiskReport(items, sum(sizes.values()), sum(item.freed for item in items))


def main() -> None:
    """Run one job to its end."""
    job = JobProcess()
    job.carry_out(StartDiskJob, lambda order: carry_out(job.settings, order))
    job.run()


if __name__ == "__main__":
    main()
