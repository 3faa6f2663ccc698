"""Takes the supervisor's messages about requests: which attempts begin, which wait, which stop.

An attempt is one try at a request. It begins with a `Run`, and ends when this worker has reported that its slot is
free. What happens in between is in ``attempt_lifecycle.py``.

Invariants:

* An attempt is in ``_attempts`` from its `Run` until its end is reported. Only the lifecycle changes that table.
* No attempt starts before this worker has read its gateway's subscription: before that, events would be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from protocol.config.settings import Settings
from protocol.failures import Code, Failure
from protocol.ids import RequestKey, held_attempt
from protocol.messages.engines import SamplingDefaults, SetRequestRules
from protocol.messages.work import AttemptEnded, Run, RunningAnswer
from protocol.models.sampling import SamplingValue
from protocol.requests.request_rules import RequestRules
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from workers.backends.base import Backend
from workers.backends.engine_facts import EngineProgress
from workers.engine.line_attribution import LineAttribution
from workers.requests.attempt import Attempt, AttemptPhase
from workers.requests.attempt_lifecycle import AttemptLifecycle
from workers.requests.interfaces import RequestBus, RequestEngine
from workers.requests.progress_reports import ProgressReports
from workers.requests.subscriptions import Subscriptions


class WorkerRequests:
    """All attempts of this worker."""

    def __init__(
        self, loop: Loop, bus: RequestBus, context: ProcessContext, settings: Settings, on_empty: Callable[[], None]
    ) -> None:
        """Take no requests yet. ``on_empty`` is called when the last one has ended, except by :meth:`fail_all`."""
        self._loop, self._settings = loop, settings
        self._log = logs.get_logger()
        self._subscriptions = Subscriptions()
        attempts: dict[RequestKey, Attempt] = {}
        self._attempts: Mapping[RequestKey, Attempt] = attempts
        self.line_attribution = LineAttribution(attempts, loop.now, loop.call_last)
        self._lifecycle = AttemptLifecycle(loop, bus, context, attempts, self.line_attribution, on_empty)
        self._progress = ProgressReports(attempts, bus.send, loop.now)
        self._session: RequestEngine | None = None
        self._backend: Backend | None = None
        self._sampling: Mapping[str, SamplingValue] = {}
        self._rules = RequestRules()
        bus.on_subscription = self._subscription_changed

    def __len__(self) -> int:
        """Return how many have not ended."""
        return len(self._attempts)

    @property
    def attempts(self) -> Collection[Attempt]:
        """Those that have not ended."""
        return self._attempts.values()

    @property
    def ended(self) -> Collection[AttemptEnded]:
        """The latest ends, except those of attempts that were returned to the supervisor."""
        return self._lifecycle.reports.latest

    @property
    def last_use(self) -> float:
        """When the engine became ready, or an attempt last began or ended; 0: never."""
        return self._lifecycle.last_use

    def tokens_so_far(self) -> tuple[int, list[RunningAnswer]]:
        """Return how many output tokens there were since the start, and the running attempts that have produced any."""
        now = self._loop.now()
        running = [
            RunningAnswer(*each.key, tokens=each.tokens, age=now - (each.answer.timing.first_at or now))
            for each in self._attempts.values()
            if each.tokens
        ]
        return self._lifecycle.reports.tokens + sum(each.tokens for each in running), running

    def busy(self) -> bool:
        """Return whether the engine has work, and need not wait for its client."""
        return any(each.phase is not AttemptPhase.WAITING and not each.held for each in self._attempts.values())

    def report_progress(self, progress: EngineProgress) -> None:
        """Report the engine's progress with the only request that it works on."""
        attempt = self._progress.report(progress, self._log)
        if attempt is not None:
            self._lifecycle.advanced(attempt, b"", 0)

    # What the controller decides.

    def open(self, session: RequestEngine, log: logs.Logger) -> None:
        """Take requests: an engine is ready."""
        self._session, self._backend, self._log = session, session.backend, log
        self._backend.sampling, self._backend.rules = self._sampling, self._rules
        self._lifecycle.open(session, log)

    def configure(self, change: SamplingDefaults | SetRequestRules) -> None:
        """Use these sampling defaults or rules for the requests that begin from now on."""
        match change:
            case SamplingDefaults():
                self._sampling = change.values
            case SetRequestRules():
                self._rules = change.rules
        if self._backend is not None:
            self._backend.sampling, self._backend.rules = self._sampling, self._rules

    def close(self) -> None:
        """Take no more requests; running ones go on."""
        self._lifecycle.close()

    def fail_all(self, failure: Failure, causes: Sequence[RequestKey] = ()) -> list[AttemptEnded]:
        """End all of them: the engine is dead, or is about to be. Return what the running ones have used.

        ``causes``: those that it may have died of, if it died by itself.
        """
        for key in self._subscriptions.waiting:
            self._subscriptions.forget(key)
        self._session = None
        return self._lifecycle.fail_all(failure, causes)

    def possible_causes(self, *, loops: bool) -> list[RequestKey]:
        """Return those that the engine may have died of, if it died by itself; if it ``loops``, those with a grammar."""
        begun = [each for each in self._attempts.values() if each.phase is not AttemptPhase.WAITING]
        if loops:
            return [attempt.key for attempt in begun if attempt.request.grammar]
        return possible_causes({each.key: each.tokens for each in begun if each.request.method != "GET"})

    # What the supervisor sends, and gateways by their subscriptions.

    def run(self, run: Run, body: bytes) -> None:
        """Start a request once its gateway has subscribed; return the request if the gateway does not."""
        key = RequestKey(run.gateway, run.number, run.attempt)
        backend = self._backend
        if key in self._attempts or backend is None:
            return
        subscribed = self._subscriptions.is_subscribed(run.gateway)
        if not self._lifecycle.accepts and not subscribed:
            self._lifecycle.return_to_supervisor(run)
            return
        attempt = Attempt(run, body, backend, self._lifecycle, self._loop.now)
        self._lifecycle.add(attempt)
        if subscribed:
            self._lifecycle.start(attempt)
        else:
            self._subscriptions.wait(key, self._loop.now())
            self._loop.call_later(self._settings.subscribe_timeout, self._return_overdue)

    def cancel(self, key: RequestKey, code: str) -> None:
        """Stop an attempt whose result is no longer wanted. Unknown ones are ignored."""
        attempt = self._attempts.get(key)
        if attempt is None:
            return
        if attempt.phase is AttemptPhase.WAITING:
            self._subscriptions.forget(key)
        self._lifecycle.cancel(attempt, code)

    def _subscription_changed(self, joined: bool, topic: bytes) -> None:
        if held := held_attempt(topic):
            self._hold(held, joined)
            return
        if joined:
            for key in self._subscriptions.joined(topic):
                self._lifecycle.start(self._attempts[key])
            return
        self._subscriptions.left(topic)
        gateway = topic[:-1].decode("utf-8", "replace")
        for key in [key for key in self._attempts if key.gateway == gateway]:
            self.cancel(key, Code.GATEWAY_GONE)
        self._lifecycle.gateway_left(gateway)

    def _hold(self, key: RequestKey, on: bool) -> None:
        attempt = self._attempts.get(key)
        if attempt is not None and self._session is not None:
            attempt.hold(on)
            self._session.monitor.wake()
            if attempt.held:
                self._log.debug("the engine waits: its client reads slowly", request_id=attempt.run.label)

    def _return_overdue(self) -> None:
        # A millisecond less than the timer's time, so that the timer finds the request that it was set for.
        for key in self._subscriptions.overdue(self._loop.now(), self._settings.subscribe_timeout - 0.001):
            self._lifecycle.end(self._attempts[key], Code.RETURNED)


def possible_causes(tokens: Mapping[RequestKey, int]) -> list[RequestKey]:
    """Return the attempts that an engine may have died of. ``tokens``: attempt in progress → its tokens so far.

    An engine compiles a grammar and reads a prompt before the first token, and this is where requests kill engines. So
    requests that have had tokens are suspected only if all have.

    If only one is possible, it is not tried again. If several are, each is tried once more, alone.
    """
    without = [key for key, count in tokens.items() if not count]
    return without or list(tokens)
