"""What repositories offer: a job process asks the hub, and whoever wants to know the same waits for it too."""

from __future__ import annotations

from functools import partial
from typing import Final

from protocol import logs
from protocol.failures import Code, Failure
from protocol.shelf import Inspected, InspectFailed, Inspecting, ListVariants, Variants
from supervisor import jobs
from supervisor.house import Handler, House
from supervisor.processes import Child

MODULE: Final = "workers.jobs.variants"
MOST_JOBS: Final = 4
"""Repositories looked at at once: each look is a process."""
PATIENCE_S: Final = 40.0
"""A hub may answer byte by byte."""

log = logs.get()


class _Look:
    def __init__(self, checkpoint: str) -> None:
        self.checkpoint = checkpoint
        self.waiting: list[tuple[str, int]] = []
        self.child: Child | None = None
        self.result: Variants | Failure | None = None


class Looks:
    """The looks at repositories that are under way."""

    def __init__(self) -> None:
        """Nobody has asked yet."""
        self._by_job: dict[str, _Look] = {}

    def handlers(self) -> dict[type, Handler]:
        """Return what each message means."""
        return {ListVariants: self._ask, Inspected: self._found, InspectFailed: self._failed}

    def _ask(self, house: House, peer: str, call: ListVariants, _payload: bytes) -> None:
        if house.settings.offline:
            raise Failure(Code.OFFLINE, "the server is offline: it asks no hub", status=500).raised()
        same = (look for look in self._by_job.values() if look.checkpoint == call.checkpoint and look.result is None)
        look = next(same, None) or self._begin(house, call.checkpoint)
        look.waiting.append((peer, call.number))

    def _begin(self, house: House, checkpoint: str) -> _Look:
        if sum(look.result is None for look in self._by_job.values()) >= MOST_JOBS:
            said = f"{MOST_JOBS} repositories are being looked at already"
            raise Failure(Code.OVERLOADED, said, retry_after=1.0).raised()
        look = _Look(checkpoint)
        job, look.child = jobs.start(house, MODULE, self._ended, Inspecting(checkpoint))
        self._by_job[job] = look
        house.loop.call_later(PATIENCE_S, partial(self._give_up, house, job))
        return look

    def _found(self, house: House, job: str, message: Inspected, _payload: bytes) -> None:
        jobs.release(house, job)
        self._settle(house, job, message.variants)

    def _failed(self, house: House, job: str, message: InspectFailed, _payload: bytes) -> None:
        jobs.release(house, job)
        failure = message.failure
        log.warning("no variants", checkpoint=message.checkpoint, reason=failure.message, detail=failure.detail)
        self._settle(house, job, failure)

    def _settle(self, house: House, job: str, result: Variants | Failure) -> None:
        look = self._by_job.get(job)
        if look is None or look.result is not None:
            return
        look.result = result
        for peer, number in look.waiting:
            jobs.tell(house, peer, number, result)

    def _give_up(self, house: House, job: str) -> None:
        look = self._by_job.get(job)
        if look is not None and look.child is not None:
            self._settle(house, job, Failure(Code.INTERNAL, f"the hub did not tell in time what {look.checkpoint} has"))
            house.processes.kill(look.child)

    def _ended(self, house: House, job: str, why: str) -> None:
        checkpoint = self._by_job[job].checkpoint
        self._settle(house, job, Failure(Code.INTERNAL, f"the look at {checkpoint} was interrupted ({why})"))
        del self._by_job[job]
