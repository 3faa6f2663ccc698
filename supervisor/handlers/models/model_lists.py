"""The calls ``ListModels`` and ``GetModel``: models as lists show them, with what their files and engines say about contexts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Final

from msgspec import structs

from protocol.messages.models import GetModel, ListModels, ModelEntry
from protocol.models.nodes import HEAD
from protocol.models.recipes import ModelOrigin, OptionValue
from supervisor.handlers.models.file_headers import FileHeaders, file_key
from supervisor.internal_errors import InternalErrors
from supervisor.models.registry import ModelRegistry
from supervisor.runtime.gateway_calls import GatewayCalls
from supervisor.runtime.handler_table import Handler
from supervisor.scheduler.view import SchedulerView
from workers.backends.registry import DESCRIPTORS

HEADER_WAIT_S: Final = 0.5
"""How long a list waits for headers that were never read; after that, they are left out."""
MAX_READ: Final = 1000
"""How many models of a list have their files read."""


class ModelLists:
    """Answers the calls."""

    def __init__(
        self,
        models: ModelRegistry,
        headers: FileHeaders,
        view: SchedulerView,
        calls: GatewayCalls,
        errors: InternalErrors,
        where: Callable[[], Mapping[str, list[str]] | None],
    ) -> None:
        """``headers``: what files say. ``where`` returns model → the other nodes that have its files; None if there are no other nodes."""
        self._models, self._headers, self._view, self._calls, self._errors = models, headers, view, calls, errors
        self._where = where

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {ListModels: self._list, GetModel: self._get}

    def _list(self, peer: str, call: ListModels, _payload: bytes) -> None:
        entries = self._models.entries(call.show_all)
        self._when_read(entries, partial(self._answer, peer, call, entries))

    def _get(self, peer: str, call: GetModel, _payload: bytes) -> None:
        entries = [self._models.entry(self._models.resolve(call.name))]
        self._when_read(entries, partial(self._answer, peer, call, entries))

    def _when_read(self, entries: list[ModelEntry], answer: Callable[[], None]) -> None:
        downloaded = [entry.id for entry in entries if entry.downloaded][:MAX_READ]
        found = [files for name in downloaded if (files := self._models.listed_files(name))]
        self._headers.when_read(frozenset(map(file_key, found)), HEADER_WAIT_S, answer)

    def _answer(self, peer: str, call: ListModels | GetModel, entries: list[ModelEntry]) -> None:
        try:
            saved, where = self._models.options.saved(), self._where()
            described = [
                _with_nodes(self._with_context(with_loaded_state(self._view, entry)), where) for entry in entries
            ]
            shown = [self._with_options(entry, saved.get(entry.id, {})) for entry in described]
            result: object = shown if isinstance(call, ListModels) else shown[0]
        except Exception as problem:  # noqa: BLE001 - the caller must be answered, and others wait behind it
            result = self._errors.failure_of(problem)
        self._calls.reply(peer, call.number, result)

    def _with_context(self, entry: ModelEntry) -> ModelEntry:
        found = self._models.listed_files(entry.id) if entry.downloaded else None
        if found is None:
            return entry
        trained = self._headers.facts(file_key(found)).context_length
        model = self._view.model(entry.id)
        engine = model.facts if model is not None else None
        context = (engine.context if engine else 0) or self._models.context_size(entry.id) or trained
        return structs.replace(entry, context_length=context, max_context_window=trained)

    def _with_options(self, entry: ModelEntry, saved: Mapping[str, OptionValue]) -> ModelEntry:
        """Return an entry with its saved options, and with its defaults of requests for pictures."""
        names = _image_options().get(entry.recipe, [])
        known = self._models.known(entry.id) if names else None
        if known is None:
            return structs.replace(entry, saved_options=dict(saved)) if saved else entry
        model = self._view.model(entry.id)
        loaded = model.spec if model is not None and model.worker else None
        options = loaded.options if loaded is not None else self._models.next_options(known, saved)
        found = {name: options[name] for name in names if options.get(name) not in (None, "")}
        return structs.replace(entry, saved_options=dict(saved), image_defaults=found)


@cache
def _image_options() -> dict[str, list[str]]:
    """Return recipe → its options that are defaults of requests for pictures, for those that have any."""
    found = {name: [each.name for each in known.options if each.image_default] for name, known in DESCRIPTORS.items()}
    return {name: options for name, options in found.items() if options}


def _with_nodes(entry: ModelEntry, where: Mapping[str, list[str]] | None) -> ModelEntry:
    """Return an entry that says on which nodes the files of its model are."""
    if where is None or not entry.downloaded or entry.origin is not ModelOrigin.FILES:
        return entry
    return structs.replace(entry, nodes=[HEAD, *where.get(entry.id, [])])


def with_loaded_state(view: SchedulerView, entry: ModelEntry) -> ModelEntry:
    """Return an entry that says whether its model is loaded."""
    loaded = view.serving(entry.id) is not None
    return structs.replace(entry, loaded=loaded) if loaded else entry
