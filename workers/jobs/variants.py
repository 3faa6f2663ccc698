"""The job process that lists the variants of a repository: ``python -m workers.jobs.variants``."""

from __future__ import annotations

from protocol.runtime import memory

if __name__ == "__main__":
    memory.pause_gc()

import traceback

from protocol.failures import Code, Failure, LemonbusError
from protocol.messages.model_files import Inspected, InspectFailed, StartInspection
from protocol.models.checkpoints import HubCheckpoint, parse
from workers.jobs.errors import SourceError
from workers.jobs.job import JobProcess
from workers.jobs.model_download.huggingface_listing import explain_hub_error, list_repository
from workers.jobs.model_download.repository_variants import list_variants


def inspect(order: StartInspection) -> Inspected | InspectFailed:
    """Ask the hub. Every error becomes the failure that is returned, in the documented form."""
    try:
        return _listed(order.checkpoint)
    except LemonbusError as problem:
        return InspectFailed(order.checkpoint, problem.failure)
    except SourceError as problem:
        return InspectFailed(order.checkpoint, _failure(problem))
    except Exception:  # noqa: BLE001 - the waiting callers must be answered after any error
        message = f"{order.checkpoint} could not be inspected"
        return InspectFailed(order.checkpoint, Failure(Code.INTERNAL, message, detail=traceback.format_exc()))


def _listed(checkpoint: str) -> Inspected:
    parsed = parse(checkpoint)
    if not isinstance(parsed, HubCheckpoint):
        raise TypeError(type(parsed).__name__)
    try:
        found = list_repository(parsed.repo)
    except Exception as problem:  # the library raises errors of three HTTP libraries, depending on its version
        raise explain_hub_error(problem, parsed.repo) from problem
    return Inspected(checkpoint, list_variants(checkpoint, parsed.repo, {file.name: file.size for file in found.files}))


def _failure(problem: SourceError) -> Failure:
    if problem.absent:
        return Failure(Code.NOT_FOUND, str(problem), param="checkpoint", detail=problem.detail)
    # The document of this route answers every other failure of the hub with 500.
    if problem.forbidden:
        return Failure(Code.CHECKPOINT_FORBIDDEN, str(problem), param="checkpoint", detail=problem.detail, status=500)
    code = Code.OFFLINE if problem.offline else Code.INTERNAL
    return Failure(code, str(problem), detail=problem.detail, status=500, retry_after=problem.retry_after)


def main() -> None:
    """Run one job to its end."""
    job = JobProcess()
    job.carry_out(StartInspection, inspect)
    job.run()


if __name__ == "__main__":
    main()
