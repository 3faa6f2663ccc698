"""Models in detail: their files, how they are loaded, what the configuration says about them; copies, the quick start's models.

:mod:`supervisor.handlers.models.file_headers` reads their headers.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cache, partial
from typing import Any, Final

import msgspec
from msgspec import structs

from protocol.config.sections import MASK
from protocol.config.settings import Settings
from protocol.failures import Code, Failure, LemonbusError, invalid, printable
from protocol.messages.model_details import (
    ConfiguredModel,
    ConfiguredValue,
    CopyModel,
    DefaultModel,
    DescribeModels,
    ListDefaultModels,
    ModelDetails,
    RemoveAlias,
    ShowModel,
)
from protocol.messages.models import ModelEntry
from protocol.models.recipes import OptionValue
from protocol.runtime.loop import Loop
from protocol.times import NEVER_UNLOADED
from supervisor.handlers.model_targets import ModelTargets
from supervisor.handlers.models.file_headers import FileHeaders, file_key
from supervisor.handlers.models.model_lists import with_loaded_state
from supervisor.internal_errors import InternalErrors
from supervisor.models import files
from supervisor.models.catalogues import catalogue
from supervisor.models.catalogues.catalogue import MAX_NAME_LENGTH, CatalogueEntry
from supervisor.models.files import ModelFiles
from supervisor.models.names import LATEST, NameIndex
from supervisor.models.registry import ModelRegistry
from supervisor.runtime.gateway_calls import GatewayCalls
from supervisor.runtime.handler_table import Handler
from supervisor.scheduler.view import SchedulerView
from supervisor.scheduler.view_values import ModelView
from workers.backends.registry import DESCRIPTORS

MAX_DESCRIBED: Final = 1000
"""How many models of a list have their files read. Later ones are shown without what their files say."""
_SHOWN_ELSEWHERE: Final = frozenset({"options", "args", "aliases"})
"""Keys of sections that are options or names."""
TIMEOUT_S: Final = 15.0
"""How long a call waits for headers; then it is answered with what is known."""


def gpu_layers(options: Mapping[str, OptionValue], used: int, layers: int) -> int:
    """Return the layers that a load asked for; else those given to the engine (``used``), of which the model may have fewer."""
    if "gpu_layers" in options:
        return int(options["gpu_layers"])
    return min(used, layers + 1) if layers else used


class ModelDescriptions:
    """Answers ``DescribeModels`` and the small calls related to it. ``headers``: what files say."""

    def __init__(
        self,
        settings: Settings,
        loop: Loop,
        models: ModelRegistry,
        targets: ModelTargets,
        headers: FileHeaders,
        view: SchedulerView,
        calls: GatewayCalls,
        errors: InternalErrors,
    ) -> None:
        self._settings, self._loop, self._models, self._targets = settings, loop, models, targets
        self._headers, self._view, self._calls, self._errors = headers, view, calls, errors

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {
            DescribeModels: self._describe,
            CopyModel: self._copy,
            RemoveAlias: self._remove_alias,
            ListDefaultModels: self._list_defaults,
            ShowModel: self._show,
        }

    def _describe(self, peer: str, call: DescribeModels, _payload: bytes) -> None:
        found = self._downloaded(call.model)[:MAX_DESCRIBED]
        keys = frozenset(file_key(files_found) for _, _, files_found in found)
        self._headers.when_read(keys, TIMEOUT_S, partial(self._answer, peer, call))

    def _answer(self, peer: str, call: DescribeModels) -> None:
        try:
            default = self._default_model()
            result: object = [
                self._details(*each, default=default, whole=bool(call.model))
                for each in self._downloaded(call.model)[:MAX_DESCRIBED]
            ]
        except Exception as problem:  # noqa: BLE001 - the caller must be answered, and others wait behind it
            result = self._errors.failure_of(problem, model=call.model)
        self._calls.reply(peer, call.number, result)

    def _details(
        self,
        entry: CatalogueEntry,
        listed: ModelEntry,
        found: ModelFiles,
        *,
        default: str,
        whole: bool,
    ) -> ModelDetails:
        facts = self._headers.facts(file_key(found))
        model = self._view.model(entry.name)
        engine = model.facts if model is not None else None
        options = self._options(entry, found)
        descriptor = DESCRIPTORS.get(entry.recipe)
        return ModelDetails(
            entry=with_loaded_state(self._view, listed),
            path=found.path,
            size=found.size,
            facts=facts if whole else structs.replace(facts, template="", metadata={}),
            is_default=entry.name == default,
            state=model.state.value if model is not None else "",
            granted=model.running if model is not None else 0,
            expires_at=self._expires_at(model) if model is not None else 0.0,
            context=engine.context if engine else max(0, int(options.get("ctx_size", 0))) or facts.context_length,
            gpu_layers=gpu_layers(options, engine.gpu_layers if engine else 0, facts.layers),
            memory=model.memory if model is not None else 0,
            forced_json=descriptor is not None and descriptor.forced_json,
            options=options,
        )

    def _expires_at(self, model: ModelView) -> float:
        """Return when a model is unloaded if it stays idle from now on, in Unix seconds; 0: never."""
        if model.ttl == NEVER_UNLOADED:
            return 0.0
        now = self._loop.now()
        return time.time() + (now + model.ttl if model.expires_at is None else model.expires_at) - now

    def _downloaded(self, name: str) -> list[tuple[CatalogueEntry, ModelEntry, ModelFiles]]:
        """Return the downloaded models, or the one with this name; raises ``model_not_found`` if it is not downloaded."""
        models = self._models
        listed = [models.entry(models.resolve(name))] if name else models.entries(show_all=False)
        cache_dir = self._settings.cache_dir
        entries = [(entry, each) for each in listed if (entry := models.known(each.id)) is not None]
        located = [(entry, each, found) for entry, each in entries if (found := files.locate(entry, cache_dir))]
        if name and not located:
            reason = f"Model {printable(name)!r} not found: it is known but not downloaded; pull it first"
            raise Failure(Code.MODEL_NOT_FOUND, reason, model=listed[0].id, param="model").raised()
        return located

    def _default_model(self) -> str:
        """Return the registered name of the default model; empty if there is none."""
        name = self._models.user_aliases.default
        entry = self._models.find(name) if name else None
        return entry.name if entry is not None else ""

    def _options(self, entry: CatalogueEntry, found: ModelFiles) -> dict[str, OptionValue]:
        """Return the options with which a model is or would be loaded."""
        model = self._view.model(entry.name)
        if model is not None and model.worker and model.spec is not None:
            return model.spec.options
        try:
            return self._models.spec(entry, {}, found=found).options
        except LemonbusError:
            return {}  # its recipe cannot be run here, or an option in the configuration is wrong: a load says which

    def _copy(self, peer: str, call: CopyModel, _payload: bytes) -> None:
        """Give a model another name; answered when it is on the disk."""
        model = self._models.resolve(call.source).name
        alias = call.destination.removesuffix(LATEST)
        if not 0 < len(alias) <= MAX_NAME_LENGTH or not alias.isprintable() or alias != alias.strip():
            raise invalid(f"`destination` must be at most {MAX_NAME_LENGTH} printable characters", "destination")
        self._models.add_alias(alias, model)
        self._targets.forget_names(alias, alias + LATEST)
        self._calls.answer_when_written(peer, call.number, model)

    def _remove_alias(self, peer: str, call: RemoveAlias, _payload: bytes) -> None:
        """Remove a name that a user gave; answered when that is on the disk."""
        alias = call.alias.removesuffix(LATEST)
        if alias not in self._models.user_aliases.aliases:
            reason = f"no user has given a model the name {printable(alias)}"
            raise Failure(Code.NOT_FOUND, reason, param="alias").raised()
        self._models.drop_alias(alias)
        self._targets.forget_names(alias, alias + LATEST)
        self._calls.answer_when_written(peer, call.number, alias)

    def _list_defaults(self, peer: str, call: ListDefaultModels, _payload: bytes) -> None:
        """Answer with the models of the quick start."""
        self._calls.answer(peer, call.number, _default_models())

    def _show(self, peer: str, call: ShowModel, _payload: bytes) -> None:
        """Show the configuration of a model; raises ``model_not_found``."""
        models = self._models
        entry = models.resolve(call.model)
        scheduled = self._view.model(entry.name)
        loaded = scheduled.spec if scheduled is not None and scheduled.worker else None
        listed = models.entry(entry)
        self._calls.answer(
            peer,
            call.number,
            ConfiguredModel(
                entry=listed,
                names=listed.other_names,
                options=_options_by_origin(models, entry),
                settings=_settings_by_origin(models, entry),
                groups=sorted(models.configuration.groups_of(entry.name)),
                state=scheduled.state.value if scheduled is not None else "",
                loaded_options=loaded.options if loaded is not None else {},
                known_options=DESCRIPTORS[entry.recipe].options if entry.recipe in DESCRIPTORS else [],
                files=files.all_files(entry, self._settings.cache_dir),
            ),
        )


@cache
def _default_models() -> list[DefaultModel]:
    return catalogue.default_models(NameIndex(catalogue.built_in()).resolve)


def _options_by_origin(models: ModelRegistry, entry: CatalogueEntry) -> list[ConfiguredValue]:
    """Return each option from the last layer that has it."""
    found: dict[str, ConfiguredValue] = {}
    for layer in models.specs.option_layers(entry):
        found |= {name: ConfiguredValue(name, value, layer.origin) for name, value in layer.options.items()}
    return list(found.values())


def _settings_by_origin(models: ModelRegistry, entry: CatalogueEntry) -> list[ConfiguredValue]:
    sources = models.configuration.sources(entry)
    merged = msgspec.to_builtins(models.configuration.of(entry))
    return [
        ConfiguredValue(name, _masked(name, value), sources[name])
        for name, value in merged.items()
        if name not in _SHOWN_ELSEWHERE and name in sources
    ]


def _masked(name: str, value: Any) -> Any:
    return dict.fromkeys(value, MASK) if name == "env" else value
