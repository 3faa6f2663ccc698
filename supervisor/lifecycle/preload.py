"""At the start, loads the models named in the settings, and prints a command to try the first one that is ready.

A model whose load fails is tried again, up to :data:`MAX_TRIES` times; a failure that repeating does not change (the file, the
options) is final at once. Until each model is loaded or has failed for good, the server is not ready.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from protocol.config.settings import Settings
from protocol.failures import Code, Failure, LemonbusError
from protocol.messages.models import Loaded
from protocol.messages.readiness import AwaitedModel
from protocol.models.recipes import ModelType
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from supervisor.handlers.model_targets import ModelTargets
from supervisor.models.registry import ModelRegistry
from supervisor.persistence.server_record import ServerRecord
from supervisor.runtime.decisions import Decisions
from supervisor.runtime.internal_calls import InternalCalls
from supervisor.scheduler.model_states import ModelState
from supervisor.scheduler.view import SchedulerView

MAX_TRIES: Final = 3
"""How often a model is tried at the start before its failure is final."""
RETRY_PAUSE_S: Final = 1.0
"""Least seconds before the second try; twice as many before each further one."""

_ENDED: Final = frozenset({Code.UNLOADED, Code.DRAINING})
"""Refusals of a load that was ended, by an unload or with the server."""

log = logs.get_logger()

_EXAMPLE_REQUESTS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    ModelType.LLM: (
        "chat/completions",
        {"stream": True, "messages": [{"role": "user", "content": "Tell me about lemons."}]},
    ),
    ModelType.EMBEDDING: ("embeddings", {"input": "Tell me about lemons."}),
    ModelType.RERANKING: ("reranking", {"query": "What is sour?", "documents": ["A lemon.", "A pear."]}),
    ModelType.TTS: ("audio/speech", {"input": "A lemon is sour.", "response_format": "wav"}),
    ModelType.IMAGE: ("images/generations", {"prompt": "A lemon on a table"}),
}
"""Model type → a route, and the fields of its request besides the model."""


def example_command(url: str, model: str, kind: str, with_key: bool) -> str:
    """Return the command that tries a model of this type.

    For a type without a route, it is the command that lists the model.
    """
    key = " -H 'Authorization: Bearer '$LEMONBUS_API_KEY" if with_key else ""
    if kind == ModelType.AUDIO:
        return f"curl {url}/v1/audio/transcriptions{key} -F file=@recording.wav -F {shlex.quote(f'model={model}')}"
    if kind not in _EXAMPLE_REQUESTS:
        return f"curl {url}/v1/models{key}"
    route, fields = _EXAMPLE_REQUESTS[kind]
    body = shlex.quote(msgspec.json.encode({"model": model, **fields}).decode())
    unbuffered = " -N" if "stream" in fields else ""
    kept = " -o speech.wav" if kind == ModelType.TTS else ""
    return f"curl{unbuffered}{kept} {url}/v1/{route}{key} -H 'Content-Type: application/json' -d {body}"


def failed_for_good(failure: Failure, tries: int) -> bool:
    """Return whether a model is given up after this many tries. Pure."""
    return failure.final or tries >= MAX_TRIES


class _Try(msgspec.Struct):
    """A model that is neither loaded nor given up."""

    model: str
    """Its registered name, once it is known; before that, the name in the settings."""
    tries: int = 0
    reason: str = ""
    """Why the last try failed."""


class ModelPreload:
    """Loads models at the start."""

    def __init__(
        self,
        settings: Settings,
        loop: Loop,
        models: ModelRegistry,
        targets: ModelTargets,
        view: SchedulerView,
        internal_calls: InternalCalls,
        decisions: Decisions,
        record: ServerRecord,
    ) -> None:
        """Load nothing yet."""
        self._settings, self._loop, self._models, self._targets = settings, loop, models, targets
        self._view, self._internal_calls, self._decisions = view, internal_calls, decisions
        self._record = record
        self._announced = False
        self._awaited: dict[str, _Try] = {}
        self.on_finished: Callable[[], None] = lambda: None
        """Called when each model was loaded, or has failed for good."""

    def load(self) -> None:
        """Load the models named in the settings, and print a command for the first one that is ready."""
        names = self._models.configuration.preload
        self._awaited = {name: _Try(name) for name in names}
        if not names:
            self.on_finished()
        for name in names:
            self._try(name)
        self._decisions.reconcile()

    def awaited(self) -> list[AwaitedModel]:
        """Return the models that are neither loaded nor have failed for good."""
        known = {each.name: each.state for each in self._view.models()}
        return [
            AwaitedModel(each.model, known.get(each.model, ModelState.ABSENT).value, each.reason)
            for each in self._awaited.values()
        ]

    def _try(self, name: str) -> None:
        attempt = self._awaited[name]
        attempt.tries += 1
        try:
            target = self._targets.resolve(name)
            attempt.model = target.name
            self._internal_calls.load(target, partial(self._tried, name), repeated=attempt.tries > 1)
        except LemonbusError as problem:
            self._tried(name, problem.failure)

    def _try_again(self, name: str) -> None:
        self._try(name)
        self._decisions.reconcile()

    def warn(self) -> None:
        """Warn about unknown models in the configuration: they may be registered later."""
        for problem in self._models.unknown_in_configuration():
            log.warning("configured model is not known", reason=problem)

    def _tried(self, name: str, result: object) -> None:
        attempt = self._awaited[name]
        if isinstance(result, Loaded):
            self._announce(result.model)
        elif isinstance(result, Failure) and result.code not in _ENDED:
            fields = {"model": name, "reason": result.message, "detail": result.detail, "tries": attempt.tries}
            if not failed_for_good(result, attempt.tries):
                attempt.reason = result.message
                pause = self._pause(attempt)
                log.warning("cannot load at start, it is tried again", **fields, retry_in=pause)
                self._loop.call_later(pause, partial(self._try_again, name))
                return
            log.error("cannot load at start", **fields)
            self._record.start_failed(attempt.model, result)
        del self._awaited[name]
        if not self._awaited:
            self.on_finished()

    def _pause(self, attempt: _Try) -> float:
        """Return the seconds before the next try: at least those for which requests do not try the model either."""
        pause = RETRY_PAUSE_S * 2.0 ** (attempt.tries - 1)
        failed = self._view.failed_models(self._loop.now())
        return max([pause, *(each.retry_in for each in failed if each.model == attempt.model)])

    def _announce(self, model: str) -> None:
        url = self._settings.base_url
        if self._announced:
            log.info("loaded at start", model=model, url=url)
            return
        self._announced = True
        entry = self._models.find(model)
        line = example_command(url, model, entry.type if entry else "", bool(self._settings.api_key))
        on_terminal = os.isatty(2)
        log.info("loaded at start", model=model, url=url, **({} if on_terminal else {"try": line}))
        if on_terminal:
            os.write(2, f"\n  Try:  {line}\n\n".encode())
