"""``ChangeModelOptions``: reads and changes the load options that are saved for a model, without loading it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from protocol.config.settings import Settings
from protocol.failures import invalid
from protocol.messages.model_details import ChangeModelOptions, ModelOptionsReport
from protocol.models.recipes import ModelSpec, OptionValue, RecipeDescriptor
from protocol.runtime import logs
from supervisor.models.catalogues.catalogue import CatalogueEntry
from supervisor.models.options.load_options import Options, engine_arguments_problem
from supervisor.models.registry import ModelRegistry
from supervisor.runtime.gateway_calls import GatewayCalls
from supervisor.runtime.handler_table import Handler
from supervisor.scheduler.view import SchedulerView
from supervisor.scheduler.view_values import ModelView

_CONTEXT: Final = "ctx_size"

log = logs.get_logger()


class ModelOptions:
    """Answers the call."""

    def __init__(self, settings: Settings, models: ModelRegistry, view: SchedulerView, calls: GatewayCalls) -> None:
        self._settings, self._models, self._view, self._calls = settings, models, view, calls

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {ChangeModelOptions: self._change}

    def _change(self, peer: str, call: ChangeModelOptions, _payload: bytes) -> None:
        """Change what is saved; raises ``model_not_found``, or ``invalid_request`` naming an option, and then changes nothing."""
        entry = self._models.resolve(call.model)
        descriptor, store = self._models.descriptor(entry), self._models.options
        before = store.item(entry.name)
        after = {} if call.erase else store.changed(entry.name, call.changes)
        self._check_arguments(entry, descriptor, call, after)
        if after != before and not call.dry_run:
            store.replace(entry.name, after)
            log.info("model options saved", model=entry.name, options=after)
        effective = self._models.next_options(entry, after)
        model = self._view.model(entry.name)
        loaded = model.spec if model is not None and model.worker else None
        outdated = loaded is not None and loaded.options != effective
        report = ModelOptionsReport(
            model=entry.name,
            recipe=entry.recipe,
            saved=before if call.dry_run else after,
            effective=_complete(descriptor, effective),
            defaults=_complete(descriptor, self._models.next_options(entry, {})),
            context=_context(effective, loaded, model),
            loaded_options=loaded.options if loaded is not None else {},
            outdated=outdated,
        )
        self._calls.answer_when_written(peer, call.number, report)

    def _check_arguments(
        self, entry: CatalogueEntry, descriptor: RecipeDescriptor, call: ChangeModelOptions, saved: Mapping[str, Any]
    ) -> None:
        """Raise ``invalid_request`` if a change of arguments or of the backend makes arguments that the engine refuses."""
        arguments = next((option.name for option in descriptor.options if option.kind == "args"), "")
        if call.erase or not {arguments, f"{descriptor.recipe}_backend"} & call.changes.keys():
            return
        problem = engine_arguments_problem(descriptor, self._models.next_options(entry, saved), self._settings)
        if problem:
            raise invalid(problem, arguments)


def _complete(descriptor: RecipeDescriptor, options: Options) -> dict[str, OptionValue | None]:
    """Return a value for each option of a recipe."""
    return {
        each.name: options.get(each.name, "" if each.kind in ("string", "args") else None)
        for each in descriptor.options
    }


def _context(options: Options, loaded: ModelSpec | None, model: ModelView | None) -> int:
    """Return the context tokens of a request after a load with these options; -1: only the load decides."""
    wanted = int(options.get(_CONTEXT, -1))
    if wanted > 0:
        return wanted
    facts = model.facts if model is not None else None
    same = loaded is not None and loaded.options.get(_CONTEXT) == options.get(_CONTEXT)
    return facts.context if facts is not None and facts.context and same else -1
