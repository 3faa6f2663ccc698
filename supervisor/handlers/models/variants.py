"""The contents of repositories: a job process asks the hub, and calls for the same repository share it."""

from __future__ import annotations

from functools import partial
from typing import Final

from protocol.failures import Code, Failure
from protocol.messages.model_files import Inspected, InspectFailed, ListVariants, StartInspection, Variants
from protocol.runtime import logs
from supervisor.processes.child_processes import ChildProcess
from supervisor.runtime import jobs
from supervisor.runtime.supervisor import Handler, Supervisor

MODULE: Final = "workers.jobs.variants"
MAX_JOBS: Final = 4
"""How many repositories are listed at a time: each takes a process. A key that is not an administrator's has one of them."""
HUB_TIMEOUT_S: Final = 40.0
"""A hub may answer byte by byte."""

log = logs.get_logger()


class _VariantQuery:
    def __init__(self, checkpoint: str, key: str) -> None:
        self.checkpoint = checkpoint
        self.key = key
        """Whose request began it; empty for an administrator's."""
        self.waiting: list[tuple[str, int]] = []
        self.child: ChildProcess | None = None
        self.result: Variants | Failure | None = None


class VariantQueries:
    """The listings in progress."""

    def __init__(self) -> None:
        """No listing runs."""
        self._by_job: dict[str, _VariantQuery] = {}

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {ListVariants: self._ask, Inspected: self._found, InspectFailed: self._failed}

    def _ask(self, supervisor: Supervisor, peer: str, call: ListVariants, _payload: bytes) -> None:
        if supervisor.settings.offline:
            raise Failure(Code.OFFLINE, "the setting `offline` forbids asking the hub", status=500).raised()
        running = [query for query in self._by_job.values() if query.result is None]
        same = (query for query in running if query.checkpoint == call.checkpoint)
        query = next(same, None) or self._begin(supervisor, call, running)
        query.waiting.append((peer, call.number))

    def _begin(self, supervisor: Supervisor, call: ListVariants, running: list[_VariantQuery]) -> _VariantQuery:
        if call.key and any(query.key == call.key for query in running):
            message = f"a repository is being listed already for the API key {call.key}"
            raise Failure(Code.OVERLOADED, message, retry_after=1.0).raised()
        if len(running) >= MAX_JOBS:
            message = f"{MAX_JOBS} repositories are being listed already"
            raise Failure(Code.OVERLOADED, message, retry_after=1.0).raised()
        query = _VariantQuery(call.checkpoint, call.key)
        job, query.child = jobs.start(supervisor, MODULE, self._ended, StartInspection(call.checkpoint))
        self._by_job[job] = query
        supervisor.loop.call_later(HUB_TIMEOUT_S, partial(self._time_out, supervisor, job))
        return query

    def _found(self, supervisor: Supervisor, job: str, message: Inspected, _payload: bytes) -> None:
        jobs.dismiss(supervisor, job)
        self._settle(supervisor, job, message.variants)

    def _failed(self, supervisor: Supervisor, job: str, message: InspectFailed, _payload: bytes) -> None:
        jobs.dismiss(supervisor, job)
        failure = message.failure
        log.warning("no variants", checkpoint=message.checkpoint, reason=failure.message, detail=failure.detail)
        self._settle(supervisor, job, failure)

    def _settle(self, supervisor: Supervisor, job: str, result: Variants | Failure) -> None:
        query = self._by_job.get(job)
        if query is None or query.result is not None:
            return
        query.result = result
        for peer, number in query.waiting:
            jobs.reply(supervisor, peer, number, result)

    def _time_out(self, supervisor: Supervisor, job: str) -> None:
        query = self._by_job.get(job)
        if query is not None and query.child is not None:
            self._settle(
                supervisor, job, Failure(Code.INTERNAL, f"the hub did not list the files of {query.checkpoint} in time")
            )
            supervisor.processes.kill(query.child)

    def _ended(self, supervisor: Supervisor, job: str, why: str) -> None:
        checkpoint = self._by_job[job].checkpoint
        self._settle(supervisor, job, Failure(Code.INTERNAL, f"the listing of {checkpoint} was interrupted ({why})"))
        del self._by_job[job]
