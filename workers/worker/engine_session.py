"""One engine and everything that lives as long as it does: process, connections, readiness, monitors.

Invariants:

* ``failure`` says why the engine is about to end, if this worker ends it; the first reason is kept.
* The engine is always ended by a signal, because stopped, hung and oversized engines must end as well.
* After :meth:`EngineSession.close` no timer of the session fires.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

from protocol.config.settings import Settings
from protocol.failures import Failure
from protocol.messages.engines import LoadProgressed, LoadStage
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from workers.backends.base import Backend
from workers.backends.engine_facts import EngineFacts, EngineProgress
from workers.engine.connections.connection_pool import EngineConnectionPool
from workers.engine.exit_cause import EngineExit
from workers.engine.process import EngineProcess
from workers.engine.readiness import ReadinessProbe
from workers.engine.remote.addresses import Found, NameLookup, find_address
from workers.engine.remote.engine import Engine, RemoteEngine
from workers.engine.remote.servers import EnginePool, RemoteServers
from workers.prompt_cache.disk_thread import DiskResult, in_disk_thread
from workers.prompt_cache.engine_caches import EngineCaches
from workers.worker import engine_failures
from workers.worker.engine_monitor import EngineMonitor, MemoryMonitor
from workers.worker.memory_difference import MemoryDifference

PROGRESS_INTERVAL_S: Final = 0.5
"""What an engine prints of its load is reported this often."""


class SessionOwner(Protocol):
    """Is told about the engine's state."""

    def engine_ready(self, session: EngineSession, facts: EngineFacts) -> None:
        """The engine answers requests."""

    def load_progressed(self, progress: LoadProgressed) -> None:
        """The engine is loading its model: it has reached another stage, or says how far it is."""

    def memory_grew(self, session: EngineSession) -> None:
        """The engine takes more memory than was known: ``memory_difference`` has changed."""

    def engine_exited(self, session: EngineSession, exit_: EngineExit) -> None:
        """The engine's process has ended. Called once, even if it was never ready."""


class EngineSession:
    """One engine, from its start to its end."""

    def __init__(
        self,
        loop: Loop,
        settings: Settings,
        backend: Backend,
        log: logs.Logger,
        owner: SessionOwner,
        busy: Callable[[], bool],
        label: Callable[[], str],
        report_progress: Callable[[EngineProgress], None],
        *,
        restore_caches: bool = True,
    ) -> None:
        """Start the engine; raises OSError if it cannot be started.

        ``busy``: whether the engine has requests. ``label``: which request its output belongs to. ``report_progress``
        is called when the output reports progress. ``restore_caches``: whether it gets kept prompt caches.
        """
        self.spec, self.backend, self._owner, self._log = backend.spec, backend, owner, log
        self._started_at = time.monotonic()
        self._report_progress, self._busy = report_progress, busy
        self._progress = LoadProgressed(LoadStage.STARTING)
        """What was reported of the load last."""
        self._progress_at = self._started_at
        self.failure: Failure | None = None
        self.engine: Engine
        self.pool: EnginePool
        if backend.servers:
            self.engine = remote = RemoteEngine(loop, backend.servers[0], self._exited)
            self.pool = RemoteServers(
                loop,
                backend.servers,
                health=backend.health,
                is_healthy=backend.is_healthy,
                timeout=backend.timeout,
                max_kept=backend.slots + 1,
                key=backend.key,
                look_up=name_lookup(loop),
                on_unreachable=lambda reason: remote.end("does not answer", reason),
                on_progress=lambda: self.monitor.progress(),  # noqa: PLW0108 - the monitor is made below
            )
        else:
            self.engine = process = EngineProcess(loop, backend, log, label, self._progressed, self._exited)
            self.pool = EngineConnectionPool(loop, process.port, backend.slots + 1, backend.key)
        by_usage = backend.descriptor.silence_by_cpu
        self._memory_monitor = memory = MemoryMonitor(
            loop, self.engine, backend.memory_limit, self._memory_exceeded, self._measure
        )
        self.monitor = EngineMonitor(loop, self.engine, backend.silence, by_usage, busy, self._hung, memory.wake)
        files, pool = backend.slot_files(), self.pool
        self._caches: EngineCaches | None = None
        if files is not None and isinstance(pool, EngineConnectionPool):
            self._caches = EngineCaches(loop, pool, settings, self.spec.name, files, log)
        self._restore_caches = restore_caches
        self.caches_unusable = False
        """Whether the engine ends, or has ended, because of prompt caches that it read: it may start again without them."""
        self.loops = False
        """Whether it is ended because it works on an endless grammar."""
        context = max(0, int(self.spec.options.get("ctx_size", 0)))
        self._memory_difference = MemoryDifference(backend.model_facts.estimate, context)
        self._loading = True
        self._load_monitor = EngineMonitor(
            loop, self.engine, backend.silence, by_usage=True, busy=lambda: self._loading, on_hung=self._load_hung
        )
        self._load_monitor.wake()
        listening = self.engine.is_listening
        self._readiness = probe = ReadinessProbe(
            loop, self.pool, backend, listening, self._answers, self._load_failed, self._reached
        )
        late = f"it was not ready within {backend.load_timeout:g} s: "
        self._load_timer = loop.call_later(backend.load_timeout, lambda: self._load_failed(late + probe.waits_for))

    def _reached(self, stage: LoadStage) -> None:
        """Report another stage of the load."""
        if stage is not self._progress.stage:
            self._load_progressed(LoadProgressed(stage))

    def _progressed(self, progress: EngineProgress) -> None:
        """Take what the engine printed: of its load, or else of a request."""
        if not self._loading:
            self._report_progress(progress)
        elif self._progress.stage is LoadStage.STARTING or time.monotonic() - self._progress_at >= PROGRESS_INTERVAL_S:
            self._load_progressed(LoadProgressed(LoadStage.LOADING, progress.done, progress.total, progress.unit))

    def _load_progressed(self, progress: LoadProgressed) -> None:
        self._progress, self._progress_at = progress, time.monotonic()
        self._owner.load_progressed(progress)

    @property
    def seconds(self) -> float:
        """How long ago the engine was started."""
        return time.monotonic() - self._started_at

    @property
    def memory_difference(self) -> int | None:
        """How far the engine's memory is from the estimate; None if that is not known, while it loads also if it is less."""
        return self._memory_difference.bytes

    @property
    def outgrown(self) -> bool:
        """Whether the working engine has taken much more memory than it was known to need."""
        return self._memory_difference.outgrown

    @property
    def restored_tokens(self) -> int:
        """Prompt tokens that the engine had from the beginning."""
        return self._caches.restored_tokens if self._caches else 0

    @property
    def leave_seconds(self) -> float:
        """How long the end of the engine may take, beyond the time that every engine has."""
        own = self.backend.stop_seconds - Backend.stop_seconds
        return own + (self._caches.leave_seconds if self._caches else 0.0)

    def end_unusable(self, reason: str) -> None:
        """End an engine whose slots cannot be freed any more."""
        self._end(engine_failures.unusable(self.backend, reason))

    def end_silent(self, reason: str, *, works: bool) -> None:
        """End an engine that does not answer. ``works``: see ``loops``."""
        self.loops = works
        self._log.error("engine hangs", engine_pid=self.engine.pid, silence=self.backend.silence, reason=reason)
        self._end(engine_failures.silent(self.backend, reason))

    def end_useless(self) -> None:
        """End an engine that works on a request whose client left long ago."""
        self._log.error("engine works for no client", engine_pid=self.engine.pid, silence=self.backend.silence)
        self._end(engine_failures.useless(self.backend))

    def save_and_stop(self) -> None:
        """End the idle engine when its prompt caches are saved, or cannot be."""
        if self._caches is None or self.failure is not None:
            self.stop()
        else:
            self._caches.save(self.stop)

    def stop(self) -> None:
        """End the engine because it is no longer needed."""
        self._stop_loading()
        if self._caches is not None:
            self._caches.abort("the server ends")
        self.pool.close()
        self.engine.stop()

    def close(self) -> None:
        """Release everything after the engine's exit. Complete responses that it had sent are still read."""
        self._stop_loading()
        self.monitor.stop()
        self._memory_monitor.stop()
        self.pool.drain()
        self.pool.close()

    def _stop_loading(self) -> None:
        self._loading = False
        self._load_timer.cancel()
        self._load_monitor.stop()
        self._readiness.cancel()

    def _end(self, failure: Failure) -> None:
        self._note(failure)
        self.engine.stop()

    def _note(self, failure: Failure) -> None:
        self.failure = self.failure or failure

    def _answers(self, facts: EngineFacts) -> None:
        """Restore prompt caches.

        This is part of the load: if the engine hangs or dies, it is handled as at any time of the load.
        """
        if self._caches is None:
            self._ready(facts)
        else:
            self._caches.restore(facts, lambda usable: self._restored(facts, usable=usable), use=self._restore_caches)

    def _restored(self, facts: EngineFacts, *, usable: bool) -> None:
        if usable:
            self._ready(facts)
        else:
            self.caches_unusable = True
            self._load_failed("it could not read its kept prompt caches")

    def _ready(self, facts: EngineFacts) -> None:
        self._stop_loading()
        self._memory_difference = MemoryDifference(self.backend.model_facts.estimate, facts.context)
        self._memory_difference.started(self.engine.memory_used())
        self._log.debug("engine ready", engine_pid=self.engine.pid, seconds=round(self.seconds, 3))
        self._owner.engine_ready(self, facts)

    def _load_failed(self, reason: str, shown: str = "did not become ready") -> None:
        self._stop_loading()
        self._end(engine_failures.not_loaded(self.backend, shown, reason))

    def _exited(self, exit_: EngineExit) -> None:
        if self._caches is not None and self._caches.engine_ended():
            self.caches_unusable = True
        if exit_.over_limit:
            self._note(engine_failures.over_limit(self.backend))
        self.close()
        self._owner.engine_exited(self, exit_)

    def _measure(self) -> bool:
        """Measure what the engine takes while it loads or works, and return whether it still does: it may die of it."""
        if self._loading:
            self._memory_difference.loading(self.engine.memory_used())
        elif self._busy() and self._memory_difference.worked(self.engine.memory_used()):
            self._owner.memory_grew(self)
        return self._loading or self._busy()

    # Engines that hang or use too much memory: the monitors send the signals.

    def _load_hung(self) -> None:
        self._note(engine_failures.hangs_while_loading(self.backend))
        self._log.error("engine hangs while it loads", engine_pid=self.engine.pid, silence=self.backend.silence)

    def _hung(self) -> None:
        self._note(engine_failures.hangs(self.backend))
        self._log.error("engine hangs", engine_pid=self.engine.pid, silence=self.backend.silence)

    def _memory_exceeded(self, used: int) -> None:
        self._note(engine_failures.over_limit(self.backend, used))
        limit = self.backend.memory_limit
        self._log.error("engine uses too much memory", engine_pid=self.engine.pid, used=used, memory_limit=limit)


def name_lookup(loop: Loop) -> NameLookup:
    """Return what looks up the names of other servers in a thread: a name server may take seconds."""

    def look_up(host: str, port: int, then: Callable[[Found | None, str], None]) -> None:
        def found(result: DiskResult[Found]) -> None:
            if result.problem is not None:
                then(None, f"its name {host} was not found ({result.problem.args[-1]})")
            else:
                then(result.value, "")

        in_disk_thread(loop, lambda: find_address(host, port), found)

    return look_up
