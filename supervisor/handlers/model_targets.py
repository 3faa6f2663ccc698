"""Which model a request or a load means, whether its key may use it, and what it is loaded with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from protocol.config.api_keys import model_allowed
from protocol.failures import Code, Failure, LemonbusError, failure_of_configuration
from protocol.messages.work import ReserveRequest, SubmitRequest
from protocol.models.recipes import ModelSpec, OptionValue
from supervisor.models import files
from supervisor.models.catalogues.catalogue import CatalogueEntry
from supervisor.models.registry import ModelRegistry
from supervisor.scheduler.inputs import ModelTarget
from supervisor.scheduler.view import SchedulerView
from supervisor.scheduler.view_values import ModelView
from workers.backends.registry import DESCRIPTORS, backend_class

AnyRequest = SubmitRequest | ReserveRequest
_ROUTES: Final = frozenset(
    {"chat/completions", "completions", "embeddings", "rerank", "images/generations", "images/edits"}
    | {"audio/transcriptions", "audio/translations"}
)
"""Endpoints that are routes with the same name below ``/v1``, which clients know.

The others are parts of these, or llama.cpp's own.
"""
MAX_NAMES: Final = 1024
"""How many names of running models are remembered, so that they are not looked up again."""


class ModelTargets:
    """Resolves the names of models to what the scheduler is given."""

    def __init__(self, models: ModelRegistry, view: SchedulerView) -> None:
        """No name is remembered."""
        self._models, self._view = models, view
        self._running_names: dict[str, str] = {}
        """Clients' name for a running model → its registered name, so that it is not looked up again."""

    def resolve(
        self,
        model: str | CatalogueEntry,
        options: Mapping[str, OptionValue] | None = None,
        *,
        ignore_saved: bool = False,
    ) -> ModelTarget:
        """Return the model that a name means, in the scheduler's form.

        Raises ``model_not_found``, or what is wrong with the options. For a model that is not downloaded, also raises
        what would keep it from running after its download.

        ``ignore_saved``: see :meth:`supervisor.models.options.model_specs.SpecBuilder.build`.
        """
        entry = self._models.resolve(model) if isinstance(model, str) else model
        known = self._view.model(entry.name)
        if known and (known.worker or known.keep_loaded) and known.spec and not options and not ignore_saved:
            return known.target
        found = self._models.located(entry)
        spec = self._models.spec(
            entry, options or {}, ignore_saved=ignore_saved, found=found or files.expected_files(entry)
        )
        if found is None:
            self._models.specs.precheck(spec)
            return ModelTarget(entry.name, entry.type.value, None)
        return ModelTarget(entry.name, spec.type, spec)

    def of_request(self, message: AnyRequest) -> ModelTarget:
        """Return the model of a request, which its key may use. The name of a running model is not looked up on the disk."""
        target = self._named(message) if message.model else self._unnamed(message)
        if target.spec is None and message.download_refusal:  # it would start a download, or wait for one
            reason = f"Model {target.name} is not on this machine, and {message.download_refusal}"
            raise Failure(Code.FORBIDDEN, reason, model=target.name, param="model").raised()
        return target

    def loaded(self, message: SubmitRequest) -> str:
        """Return the registered name of the loaded model for a read of an engine's state."""
        model, endpoint = message.model, message.endpoint

        def answers(loaded: ModelView) -> bool:
            return loaded.spec is not None and serves(loaded.spec, endpoint)

        if model:
            found = self._view.model(self._models.resolve(model, _models_of(message)).name)
        else:
            found = self._view.latest(lambda each: answers(each) and _may_use(message, each.name))
        if found is None or not found.slots or not answers(found):
            which = (
                f"Model {model} is not a loaded model with {endpoint}"
                if model
                else f"No model with {endpoint} is loaded"
            )
            raise Failure(Code.INVALID_REQUEST, which, param="model").raised()
        _check_model(message, found.name)
        return found.name

    def forget_names(self, *names: str) -> None:
        """Look these names up again: they may mean other models now."""
        for name in names:
            self._running_names.pop(name, None)

    def forget_model(self, model: str) -> None:
        """Forget all names of a model, given by its registered one."""
        self.forget_names(*[name for name, known in self._running_names.items() if known == model])

    def _named(self, message: AnyRequest) -> ModelTarget:
        target = self._view.serving(self._running_names.get(message.model, ""))
        if target is not None and target.spec is not None:
            _check_model(message, target.name)
            known: CatalogueEntry | ModelSpec = target.spec
        else:
            known = entry = self._models.resolve(message.model, _models_of(message))
            _check_model(message, entry.name)
            if entry.recipe in DESCRIPTORS:
                backend_class(entry.recipe)  # raises if this machine cannot run it, before it is downloaded
            target = self._configured(entry)
            if len(self._running_names) >= MAX_NAMES:
                self._running_names.clear()
            self._running_names[message.model] = target.name
        if not serves(known, message.endpoint):
            if isinstance(known, CatalogueEntry):
                self._models.descriptor(known)
            routes = _routes(known)
            own = f"; it serves {', '.join(routes)}" if routes else ""
            reason = f"Model {target.name} is of type {target.type} and does not serve {message.endpoint}{own}"
            raise Failure(Code.INVALID_REQUEST, reason, model=target.name, param="model").raised()
        return target

    def _unnamed(self, message: AnyRequest) -> ModelTarget:
        """Return the model for a request that names none: the default model, else the one used last.

        It serves the endpoint, and the caller may use it; it need not be loaded.
        """
        for name in filter(None, [self._models.user_aliases.default, *self._view.used()]):
            entry = self._models.find(name)
            if entry is not None and serves(entry, message.endpoint) and _may_use(message, entry.name):
                return self._configured(entry)
        reason = f"No model was named, and none that serves {message.endpoint} was used yet"
        raise Failure(Code.INVALID_REQUEST, reason, param="model").raised()

    def _configured(self, entry: CatalogueEntry) -> ModelTarget:
        """Return a model as the configuration wants it loaded.

        Raises like :meth:`resolve`, but never as a client's error.
        """
        try:
            return self.resolve(entry)
        except LemonbusError as problem:
            raise failure_of_configuration(problem.failure, entry.name).raised() from problem


def serves(model: CatalogueEntry | ModelSpec, endpoint: str) -> bool:
    """Return whether a model of this type and recipe answers an endpoint, such as ``chat/completions``."""
    descriptor = DESCRIPTORS.get(model.recipe)
    return descriptor is not None and endpoint in descriptor.serves.get(model.type, [])


def _routes(model: CatalogueEntry | ModelSpec) -> list[str]:
    """Return the routes of OpenAI's API, and those for scores, that a model of this type and recipe answers."""
    descriptor = DESCRIPTORS.get(model.recipe)
    served = descriptor.serves.get(model.type, []) if descriptor is not None else []
    return [f"/v1/{endpoint}" for endpoint in served if endpoint in _ROUTES]


def _models_of(message: AnyRequest) -> list[str]:
    """Return the patterns of the models that the caller's key may use; empty: all models."""
    return message.caller.models if message.caller else []


def _may_use(message: AnyRequest, model: str) -> bool:
    return model_allowed(_models_of(message), model)


def _check_model(message: AnyRequest, model: str) -> None:
    """Refuse a model that the caller's key may not use, whatever name the client gave it."""
    if not _may_use(message, model):
        key = message.caller.key if message.caller else ""
        reason = f"The API key {key} may not use model {model}"
        raise Failure(Code.FORBIDDEN, reason, model=model, param="model").raised()
