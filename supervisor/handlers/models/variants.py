"""The contents of repositories: a job process asks the hub, and calls for the same repository share it."""

from __future__ import annotations

from functools import partial
from typing import Final

from protocol.config.settings import Settings
from protocol.failures import Code, Failure
from protocol.messages.model_files import Inspected, InspectFailed, ListVariants, StartInspection, Variants
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from supervisor.runtime.gateway_calls import GatewayCalls
from supervisor.runtime.handler_table import Handler
from supervisor.runtime.jobs import Jobs

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
        self.result: Variants | Failure | None = None


class VariantQueries:
    """The listings in progress."""

    def __init__(self, settings: Settings, loop: Loop, jobs: Jobs, calls: GatewayCalls) -> None:
        """No listing runs."""
        self._settings, self._loop, self._jobs, self._calls = settings, loop, jobs, calls
        self._by_job: dict[str, _VariantQuery] = {}

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {ListVariants: self._ask, Inspected: self._found, InspectFailed: self._failed}

    def _ask(self, peer: str, call: ListVariants, _payload: bytes) -> None:
        if self._settings.offline:
            raise Failure(Code.OFFLINE, "the setting `offline` forbids asking the hub", status=500).raised()
        running = [query for query in self._by_job.values() if query.result is None]
        same = (query for query in running if query.checkpoint == call.checkpoint)
        query = next(same, None) or self._begin(call, running)
        query.waiting.append((peer, call.number))

    def _begin(self, call: ListVariants, running: list[_VariantQuery]) -> _VariantQuery:
        if call.key and any(query.key == call.key for query in running):
            message = f"a repository is being listed already for the API key {call.key}"
            raise Failure(Code.OVERLOADED, message, retry_after=1.0).raised()
        if len(running) >= MAX_JOBS:
            message = f"{MAX_JOBS} repositories are being listed already"
            raise Failure(Code.OVERLOADED, message, retry_after=1.0).raised()
        query = _VariantQuery(call.checkpoint, call.key)
        job = self._jobs.start(MODULE, self._ended, StartInspection(call.checkpoint))
        self._by_job[job] = query
        self._loop.call_later(HUB_TIMEOUT_S, partial(self._time_out, job))
        return query

    def _found(self, job: str, message: Inspected, _payload: bytes) -> None:
        self._jobs.dismiss(job)
        self._settle(job, message.variants)

    def _failed(self, job: str, message: InspectFailed, _payload: bytes) -> None:
        self._jobs.dismiss(job)
        failure = message.failure
        log.warning(
            "the variants of a checkpoint cannot be listed",
            checkpoint=message.checkpoint,
            reason=failure.message,
            detail=failure.detail,
        )
        self._settle(job, failure)

    def _settle(self, job: str, result: Variants | Failure) -> None:
        query = self._by_job.get(job)
        if query is None or query.result is not None:
            return
        query.result = result
        for peer, number in query.waiting:
            self._calls.reply(peer, number, result)

    def _time_out(self, job: str) -> None:
        query = self._by_job.get(job)
        if query is not None:
            late = Failure(Code.INTERNAL, f"the hub did not list the files of {query.checkpoint} in time")
            self._settle(job, late)
            self._jobs.kill(job)

    def _ended(self, job: str, why: str) -> None:
        checkpoint = self._by_job[job].checkpoint
        self._settle(job, Failure(Code.INTERNAL, f"the listing of {checkpoint} was interrupted ({why})"))
        del self._by_job[job]
