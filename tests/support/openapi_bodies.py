"""Bodies against the schemas of the OpenAPI document."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jsonschema_rs
import msgspec


def body_check(document: dict[str, Any]) -> Callable[[dict[str, Any], Any], None]:
    """Return a function that raises if a body does not fit a schema of the document. Few schemas are declared, and compiling one takes long."""

    @cache
    def validator(schema: bytes) -> jsonschema_rs.Validator:
        return jsonschema_rs.validator_for({**msgspec.json.decode(schema), "components": document["components"]})

    return lambda schema, body: validator(msgspec.json.encode(schema)).validate(body)
