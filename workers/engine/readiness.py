"""From a started engine to a ready one: asks for its health, warms it up, asks for its facts, checks the slot probe.

Invariant: exactly one of ``on_ready`` and ``on_failed`` is called, unless :meth:`ReadinessProbe.cancel` comes first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from protocol.messages.engines import LoadStage
from protocol.models.recipes import IdleCheck
from protocol.runtime.loop import Loop, Timer
from workers.backends.base import Backend
from workers.backends.engine_facts import EngineFacts
from workers.backends.engine_request import EngineRequest
from workers.backends.error_texts import without_key
from workers.engine.connections.exchange import BufferedResponse, OnResponse
from workers.engine.error_responses import failure_in_body
from workers.engine.remote.servers import EnginePool

FIRST_POLL_S: Final = 0.006
MAX_POLL_INTERVAL_S: Final = 0.1
POLL_GROWTH: Final = 1.05

_UNPROBED: Final = (IdleCheck.ANSWER, IdleCheck.DISCONNECTED)
"""After a cancelled request, such an engine is not asked whether it is idle."""

OnReady = Callable[[EngineFacts], None]
OnFailed = Callable[[str, str], None]
"""Gets the reason for administrators, and what clients may be told, in the words after the engine's name."""


class ReadinessProbe:
    """Waits for one engine. Its owner calls :meth:`cancel` when the engine ends."""

    def __init__(
        self,
        loop: Loop,
        pool: EnginePool,
        backend: Backend,
        is_listening: Callable[[], bool],
        on_ready: OnReady,
        on_failed: OnFailed,
        on_stage: Callable[[LoadStage], None] = lambda _: None,
    ) -> None:
        """Begin at once. ``is_listening``: see :meth:`~workers.engine.port.ReservedPort.is_listening`.

        ``on_stage`` is called when the engine's answers show how far it is, perhaps more than once for a stage.
        """
        self._loop, self._pool, self._backend = loop, pool, backend
        self._is_listening = is_listening
        self._on_ready, self._on_failed, self._on_stage = on_ready, on_failed, on_stage
        self._facts: EngineFacts | None = None
        self._pause = FIRST_POLL_S
        self.waits_for = "nothing listened on its port"
        """Why it is not ready yet."""
        self._timer: Timer | None = loop.call_later(FIRST_POLL_S, self._poll_health)
        self._over = False

    def cancel(self) -> None:
        """Stop waiting."""
        self._over = True
        if self._timer is not None:
            self._timer.cancel()

    def _ask(self, request: EngineRequest, then: OnResponse) -> None:
        def answered(status: int, body: bytes) -> None:
            if self._over:
                return
            try:
                then(status, body)
            except Exception as error:
                self._fail(f"an internal error: {error!r}")
                raise

        self._pool.send(request, BufferedResponse(answered))

    def _poll_health(self) -> None:
        try:
            listening = self._is_listening()
        except PermissionError as problem:
            self._fail(str(problem))
            return
        if listening:
            self._ask(self._backend.health(), self._on_health)
        else:
            self._poll_later()

    def _on_health(self, status: int, body: bytes) -> None:
        if problem := self._backend.health_problem(status, body):
            self._fail(body.decode("utf-8", "replace") if not status else f"{status}: {self._excerpt(body)}", problem)
            return
        path = self._backend.health().path
        self.waits_for = f"{path} was answered with {status}" if status else f"{path} was not answered"
        if not self._backend.is_healthy(status):
            if status:
                self._on_stage(LoadStage.LOADING)
            self._poll_later()
            return
        self._on_stage(LoadStage.WARMING_UP)
        warm_up = self._backend.warm_up()
        if warm_up is None:
            self._on_warm_up(200, b"")
        else:
            self._ask(warm_up, self._on_warm_up)

    def _poll_later(self) -> None:
        self._timer = self._loop.call_later(self._pause, self._poll_health)
        self._pause = min(MAX_POLL_INTERVAL_S, self._pause * POLL_GROWTH)

    def _on_warm_up(self, status: int, body: bytes) -> None:
        if status == 0:
            self._poll_later()  # the engine probably died of it: its exit says how
            return
        if status >= 400 or failure_in_body(body, self._backend) is not None:
            self._fail(f"its warm-up was answered with {status}: {self._excerpt(body)}")
            return
        self._ask(self._backend.about(), self._on_about)

    def _on_about(self, status: int, body: bytes) -> None:
        if status == 0:
            self._poll_later()
            return
        try:
            self._facts = self._backend.facts(body)
        except ValueError as problem:
            self._fail(f"its description of itself is not understood ({status}): {problem}")
            return
        if any(self._backend.idle_check(each) not in _UNPROBED for each in self._backend.descriptor.idle_check):
            self._ask(self._backend.busy(), self._on_busy)
        else:
            self._succeed(self._facts)

    def _on_busy(self, status: int, body: bytes) -> None:
        """Check that the probe that frees a cancelled request's slot will be answered."""
        if status == 0:
            self._poll_later()
            return
        probe = self._backend.busy().path
        if self._backend.busy_status not in (status, 0):
            self._fail(
                f"{probe} was answered with {status}, so a cancelled request would block it: {self._excerpt(body)}"
            )
            return
        try:
            self._backend.processing(body)
        except ValueError as problem:
            self._fail(f"its response to {probe} is not understood: {problem}")
            return
        if self._facts is not None:
            self._succeed(self._facts)

    def _succeed(self, facts: EngineFacts) -> None:
        self._over = True
        self._on_ready(facts)

    def _fail(self, reason: str, shown: str = "did not become ready") -> None:
        if not self._over:
            self._over = True
            self._on_failed(reason, shown)

    def _excerpt(self, body: bytes) -> str:
        return without_key(body, self._backend.key)[:300].decode("utf-8", "replace")
