"""Answers what the configuration says about one model, and where each value comes from."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from protocol.config.model_sections import MASK
from protocol.messages.model_configuration import ConfiguredModel, ConfiguredValue, ShowModel
from supervisor.models.catalogues.catalogue import CatalogueEntry
from supervisor.models.registry import ModelRegistry
from supervisor.runtime.supervisor import Handler, Supervisor

_SHOWN_ELSEWHERE: Final = frozenset({"options", "args", "aliases"})
"""Keys of sections that are options or names."""


def show_model(supervisor: Supervisor, peer: str, call: ShowModel, _payload: bytes) -> None:
    """Show the configuration of a model; raises ``model_not_found``."""
    models = supervisor.models
    entry = models.resolve(call.model)
    scheduled = supervisor.scheduler.view.model(entry.name)
    loaded = scheduled.spec if scheduled is not None and scheduled.worker else None
    listed = models.entry(entry)
    supervisor.calls.answer(
        peer,
        call.number,
        ConfiguredModel(
            entry=listed,
            names=listed.other_names,
            options=_options(models, entry),
            settings=_settings(models, entry),
            groups=sorted(models.configuration.groups_of(entry.name)),
            state=scheduled.state.value if scheduled is not None else "",
            loaded_options=loaded.options if loaded is not None else {},
        ),
    )


def _options(models: ModelRegistry, entry: CatalogueEntry) -> list[ConfiguredValue]:
    """Return each option from the last layer that has it."""
    found: dict[str, ConfiguredValue] = {}
    for layer in models.specs.option_layers(entry):
        found |= {name: ConfiguredValue(name, value, layer.origin) for name, value in layer.options.items()}
    return list(found.values())


def _settings(models: ModelRegistry, entry: CatalogueEntry) -> list[ConfiguredValue]:
    sources = models.configuration.sources(entry)
    merged = msgspec.to_builtins(models.configuration.of(entry))
    return [
        ConfiguredValue(name, _shown(name, value), sources[name])
        for name, value in merged.items()
        if name not in _SHOWN_ELSEWHERE and name in sources
    ]


def _shown(name: str, value: Any) -> Any:
    return dict.fromkeys(value, MASK) if name == "env" else value


HANDLERS: Final[dict[type, Handler]] = {ShowModel: show_model}
