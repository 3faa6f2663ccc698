"""At the start, loads the models named in the settings, and prints a command to try the first one that is ready."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from protocol.config.settings import Settings
from protocol.failures import Failure, LemonbusError
from protocol.messages.models import Loaded
from protocol.models.recipes import ModelType
from protocol.runtime import logs
from supervisor.handlers.model_targets import ModelTargets
from supervisor.models.registry import ModelRegistry
from supervisor.runtime.decisions import Decisions
from supervisor.runtime.internal_calls import InternalCalls

log = logs.get_logger()

_EXAMPLE_REQUESTS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    ModelType.LLM: (
        "chat/completions",
        {"stream": True, "messages": [{"role": "user", "content": "Tell me about lemons."}]},
    ),
    ModelType.EMBEDDING: ("embeddings", {"input": "Tell me about lemons."}),
    ModelType.RERANKING: ("reranking", {"query": "What is sour?", "documents": ["A lemon.", "A pear."]}),
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
    return f"curl{unbuffered} {url}/v1/{route}{key} -H 'Content-Type: application/json' -d {body}"


class ModelPreload:
    """Loads models at the start."""

    def __init__(
        self,
        settings: Settings,
        models: ModelRegistry,
        targets: ModelTargets,
        internal_calls: InternalCalls,
        decisions: Decisions,
    ) -> None:
        """Load nothing yet."""
        self._settings, self._models, self._targets = settings, models, targets
        self._internal_calls, self._decisions = internal_calls, decisions
        self._announced = False
        self._loading: set[str] = set()
        self.on_finished: Callable[[], None] = lambda: None
        """Called when each model was loaded, or could not be."""

    def load(self) -> None:
        """Load the models named in the settings, and print a command for the first one that is ready."""
        names = self._models.configuration.preload
        self._loading = set(names)
        if not names:
            self.on_finished()
        for name in names:
            try:
                self._internal_calls.load(self._targets.resolve(name), partial(self._loaded, name))
            except LemonbusError as problem:
                self._loaded(name, problem.failure)
        self._decisions.reconcile()

    def warn(self) -> None:
        """Warn about unknown models in the configuration: they may be registered later."""
        for problem in self._models.unknown_in_configuration():
            log.warning("configured model is not known", problem=problem)

    def _loaded(self, name: str, result: object) -> None:
        if isinstance(result, Loaded):
            self._announce(result.model)
        elif isinstance(result, Failure):
            log.error("cannot load at start", model=name, reason=result.message, detail=result.detail)
        self._loading.discard(name)
        if not self._loading:
            self.on_finished()

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
