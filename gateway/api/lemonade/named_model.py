"""The model in a request of Lemonade's: `model_name`, or `model`, which means the same."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from gateway.api.common.request_fields import MAX_NAME_LENGTH
from protocol.failures import invalid

Name = Annotated[str, Meta(max_length=MAX_NAME_LENGTH, extra_json_schema={"minLength": 1})]
"""An empty name counts as absent: clients send it if a person has left a field empty."""


class NamedModel(msgspec.Struct, kw_only=True):
    """A model by its name; `model` means the same as `model_name`."""

    model_name: Name | None = None
    model: Name | None = None

    @property
    def given_name(self) -> str:
        """The name, empty if there is none; raises ``invalid_request`` for two that differ."""
        if self.model_name and self.model and self.model_name != self.model:
            raise invalid("`model_name` and `model` name different models", "model_name")
        return self.model_name or self.model or ""

    @property
    def name(self) -> str:
        """The name; raises ``invalid_request`` if there is none, or for two that differ."""
        if not self.given_name:
            raise invalid("`model_name` is required", "model_name")
        return self.given_name
