"""When to retry a model that failed to load or died. Pure: times are arguments."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from protocol.failures import Code, Failure

FORGIVEN_AFTER_PAUSES: Final = 10
"""After this many longest pauses without a further failure, a model counts as sound again."""
MAX_FAILED_CHECKS: Final = 64


class BackoffPolicy(NamedTuple):
    """Pauses in seconds after failed loads, and how many deaths within a window open the breaker."""

    first: float = 1.0
    most: float = 60.0
    deaths: int = 20
    window: float = 60.0


class FailedCheck(NamedTuple):
    """The last failed check of a model, the number of failures in a row, and the time of the last one."""

    failure: Failure
    failures: int
    at: float


class Backoff:
    """The failures of one model, and how long it is not tried because of them."""

    def __init__(self, policy: BackoffPolicy) -> None:
        """Start without failures."""
        self._policy = policy
        self._deaths: deque[float] = deque()
        self._until = 0.0
        self.failed_at = 0.0
        """When it last failed."""
        self.failures = 0
        self.failure: Failure | None = None
        self._fatal_deaths = 0

    def load_failed(self, failure: Failure, now: float) -> None:
        """Note that it did not become ready: the pause doubles from ``first`` to ``most``."""
        self.failures += 1
        pause = min(self._policy.most, self._policy.first * 2.0 ** min(self.failures - 1, 30))
        self._pause(failure, pause, now)

    def died(self, failure: Failure, now: float) -> bool:
        """Note a death after it was ready; return whether it may be restarted at once."""
        self._deaths.append(now)
        while self._deaths and self._deaths[0] <= now - self._policy.window:
            self._deaths.popleft()
        if len(self._deaths) <= self._policy.deaths:
            return True
        reason = f"died {len(self._deaths)} times in {self._policy.window:g} s, last: {failure.message}"
        self._pause(Failure(Code.BREAKER_OPEN, reason, model=failure.model), self._policy.most, now)
        self._fatal_deaths = len(self._deaths)
        self._deaths.clear()
        return False

    def _pause(self, failure: Failure, seconds: float, now: float) -> None:
        self.failure = failure
        self.failed_at = now
        self._until = now + seconds

    def ready(self) -> None:
        """Forget the failed loads, because it loaded. Deaths count until their window is over."""
        self.failures = self._fatal_deaths = 0
        self._until = 0.0
        self.failure = None

    @property
    def reported_failures(self) -> int:
        """Failed loads since the last good one; if there were none, the deaths that opened the breaker."""
        return self.failures or self._fatal_deaths

    def pause(self, now: float) -> float:
        """Return the seconds until it may be tried again; 0: now."""
        return max(0.0, self._until - now)

    def recently_failed(self, now: float) -> bool:
        """Return whether its last try failed recently. Then only an explicit load may evict other models for it."""
        return self.forgiven_in(now) > 0

    def forgiven_in(self, now: float) -> float:
        """Return for how many seconds its last failure still counts."""
        return (
            0.0 if self.failure is None else max(0.0, self.failed_at + FORGIVEN_AFTER_PAUSES * self._policy.most - now)
        )

    def refusal(self, model: str, now: float) -> Failure:
        """Return the failure for a request during the pause: the known failure itself, if waiting does not help."""
        if self.failure and self.failure.final:
            return self.failure
        reason = self.failure.message if self.failure else "unknown"
        code = Code.BREAKER_OPEN if self.failure and self.failure.code is Code.BREAKER_OPEN else Code.BACKING_OFF
        pause = self.pause(now)
        return Failure(
            code,
            f"Model {model} is not tried again for {pause:.0f} s: {reason}",
            model=model,
            retry_after=pause,
            detail=self.failure.detail if self.failure else "",
        )


class FailedChecks:
    """Models whose files or memory needs were refused recently, before an engine was started, or whose idle engines were killed for memory.

    They are only reported: such a model is checked again with the next request, because a check is cheap and evicts
    nothing.
    """

    def __init__(self, policy: BackoffPolicy) -> None:
        """Start without failures."""
        self._kept_for = FORGIVEN_AFTER_PAUSES * policy.most
        self._failed: dict[str, FailedCheck] = {}

    def note(self, model: str, failure: Failure, now: float) -> None:
        """Note that a check failed. If there are very many failures, the oldest are forgotten."""
        count = self._failed.pop(model).failures if model in self._failed else 0
        self._failed[model] = FailedCheck(failure, count + 1, now)
        while len(self._failed) > MAX_FAILED_CHECKS:
            del self._failed[next(iter(self._failed))]

    def forget(self, model: str) -> None:
        """Forget a model, because it passed its check or was deleted."""
        self._failed.pop(model, None)

    def recent(self, now: float) -> dict[str, FailedCheck]:
        """Return the failures that still count, by model."""
        return {model: failed for model, failed in self._failed.items() if now - failed.at < self._kept_for}
