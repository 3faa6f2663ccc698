"""``GET /internal/configuration?model=NAME``: what is configured for a model, and where each value comes from."""

from __future__ import annotations

from typing import Any, ClassVar

import falcon
import msgspec

from gateway.bus.session import SupervisorSession
from protocol.failures import invalid
from protocol.messages.model_configuration import ConfiguredModel, ConfiguredValue, ShowModel
from protocol.models.recipes import OptionValue


class ConfigurationQuery(msgspec.Struct):
    """Which model."""

    model: str


class ConfigurationAnswer(msgspec.Struct):
    """What is configured for a model."""

    id: str
    """The registered name."""
    names: list[str]
    recipe: str
    type: str
    downloaded: bool
    state: str
    options: list[ConfiguredValue]
    settings: list[ConfiguredValue]
    groups: list[str]
    loaded_options: dict[str, OptionValue]


class ConfigurationResource:
    """Shows the configuration of one model."""

    # It changes nothing. But arguments name files of this machine, so only an administrator may read them.
    changes: ClassVar[frozenset[str]] = frozenset({"GET"})

    def __init__(self, session: SupervisorSession) -> None:
        """Call the supervisor through ``session``."""
        self._session = session

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer."""
        model: Any = req.get_param("model")
        if not model:
            raise invalid("`model` is missing: which model's configuration?", "model")
        found = self._session.call(req.env, lambda number: ShowModel(number, model), ConfiguredModel)
        entry = found.entry
        answer = ConfigurationAnswer(
            entry.id,
            found.names,
            entry.recipe,
            entry.type,
            entry.downloaded,
            found.state,
            found.options,
            found.settings,
            found.groups,
            found.loaded_options,
        )
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(answer)
