"""What repositories offer: a job process asks the hub, and whoever wants to know the same waits for it too."""

from __future__ import annotations

from functools import partial
from typing import Final

from protocol.failures import Code, Failure
from protocol.messages.model_files import Inspected, InspectFailed, ListVariants, StartInspection, Variants
from protocol.runtime import logs
from supervisor.runtime import jobs
from supervisor.runtime.processes import ChildProcess
from supervisor.runtime.supervisor import Handler, Supervisor

MODULE: Final = "workers.jobs.variants"
MAX_JOBS: Final = 4
"""Repositories looked at at once: each look is a process."""
HUB_TIMEOUT_S: Final = 40.0
"""A hub may answer byte by byte."""

log = logs.get_logger()


class _VariantQuery:
    def __init__(self, checkpoint: str) -> None:
        self.checkpoint = checkpoint
        self.waiting: list[tuple[str, int]] = []
        self.child: ChildProcess | None = None
        self.result: Variants | Failure | None = None


class VariantQueries:
    """The looks at repositories that are under way."""

    def __init__(self) -> None:
        """Nobody has asked yet."""
        self._by_job: dict[str, _VariantQuery] = {}

    def handlers(self) -> dict[type, Handler]:
        """Return what each message means."""
        return {ListVariants: self._ask, Inspected: self._found, InspectFailed: self._failed}

    def _ask(self, supervisor: Supervisor, peer: str, call: ListVariants, _payload: bytes) -> None:
        if supervisor.settings.offline:
            raise Failure(Code.OFFLINE, "the server is offline: it asks no hub", status=500).raised()
        same = (look for look in self._by_job.values() if look.checkpoint == call.checkpoint and look.result is None)
        look = next(same, None) or self._begin(supervisor, call.checkpoint)
        look.waiting.append((peer, call.number))

    def _begin(self, supervisor: Supervisor, checkpoint: str) -> _VariantQuery:
        if sum(look.result is None for look in self._by_job.values()) >= MAX_JOBS:
            said = f"{MAX_JOBS} repositories are being looked at already"
            raise Failure(Code.OVERLOADED, said, retry_after=1.0).raised()
        look = _VariantQuery(checkpoint)
        job, look.child = jobs.start(supervisor, MODULE, self._ended, StartInspection(checkpoint))
        self._by_job[job] = look
        supervisor.loop.call_later(HUB_TIMEOUT_S, partial(self._time_out, supervisor, job))
        return look

    def _found(self, supervisor: Supervisor, job: str, message: Inspected, _payload: bytes) -> None:
        jobs.dismiss(supervisor, job)
        self._settle(supervisor, job, message.variants)

    def _failed(self, supervisor: Supervisor, job: str, message: InspectFailed, _payload: bytes) -> None:
        jobs.dismiss(supervisor, job)
        failure = message.failure
        log.warning("no variants", checkpoint=message.checkpoint, reason=failure.message, detail=failure.detail)
        self._settle(supervisor, job, failure)

    def _settle(self, supervisor: Supervisor, job: str, result: Variants | Failure) -> None:
        look = self._by_job.get(job)
        if look is None or look.result is not None:
            return
        look.result = result
        for peer, number in look.waiting:
            jobs.reply(supervisor, peer, number, result)

    def _time_out(self, supervisor: Supervisor, job: str) -> None:
        look = self._by_job.get(job)
        if look is not None and look.child is not None:
            self._settle(
                supervisor, job, Failure(Code.INTERNAL, f"the hub did not tell in time what {look.checkpoint} has")
            )
            supervisor.processes.kill(look.child)

    def _ended(self, supervisor: Supervisor, job: str, why: str) -> None:
        checkpoint = self._by_job[job].checkpoint
        self._settle(supervisor, job, Failure(Code.INTERNAL, f"the look at {checkpoint} was interrupted ({why})"))
        del self._by_job[job]
