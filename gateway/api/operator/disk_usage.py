"""``GET /internal/disk-usage`` and ``POST /internal/prune``: what the server has on the disk, and the removal of what nothing uses."""

from __future__ import annotations

import msgspec

from gateway.api.common.operations import BODY
from gateway.api.common.routes import HttpCaller, Nothing, route
from protocol.messages.disk_usage import DiskItem, DiskReport, MeasureDisk, PruneDisk


class DiskUsageAnswer(msgspec.Struct):
    """What there is, the largest first. Sizes in bytes, as the disk allocates them."""

    items: list[DiskItem]
    total: int
    """What several items share counts once."""
    unused: int
    """Of the items that nothing uses: what `prune` would remove."""


class PruneRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What to remove."""

    dry_run: bool = False
    """Remove nothing; only say what would be removed."""
    prompt_caches: bool = False
    """Also the kept prompt caches of models that exist."""


class PruneAnswer(msgspec.Struct):
    """What nothing uses, and what was removed."""

    items: list[DiskItem]
    total: int
    """Of these items."""
    freed: int
    """What the disk got back: a file that also has another name gives back nothing."""


@route("GET", "/internal/disk-usage", changes=True)  # it names files of this machine
def show_disk_usage(caller: HttpCaller, _request: Nothing) -> DiskUsageAnswer:
    """Shows what the server has on the disk: models, engines, prompt caches, partial downloads, its state."""
    report = caller.ask(MeasureDisk, DiskReport)
    return DiskUsageAnswer(
        report.items, report.total, sum(item.size for item in report.items if item.unused and not item.kept)
    )


@route(
    "POST",
    "/internal/prune",
    changes=True,
    body_required=False,
    failures=BODY,
    examples={"dry run": {"dry_run": True}, "all": {"prompt_caches": True}},
)
def prune_disk(caller: HttpCaller, request: PruneRequest) -> PruneAnswer:
    """Removes what nothing uses: partial downloads, replaced engine versions, files and prompt caches of deleted models.

    Nothing that a loaded model, a running or paused download or another process uses is removed.
    """
    report = caller.ask(
        lambda number: PruneDisk(number, dry_run=request.dry_run, prompt_caches=request.prompt_caches), DiskReport
    )
    return PruneAnswer(report.items, report.total, report.freed)
