"""Requests without thoughts before the answer, in terms that chat templates and llama-server know. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

_SWITCH: Final = "enable_thinking"
"""The name that most chat templates use for this."""
THINKING_FIELDS: Final = frozenset(
    {"reasoning_effort", "reasoning", "thinking", _SWITCH, "think", "chat_template_kwargs"}
)
"""Fields by which clients ask for thoughts, or for none."""
_OFF: Final = ["none", "disabled"]
_any: Final = msgspec.json.decode


def no_thinking(template: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the fields of a chat without thoughts.

    ``template``: variables of its chat template, which take precedence.

    If a template has no switch, llama-server ends the thoughts as soon as they begin.
    """
    variables = {_SWITCH: False, **(template or {})}
    budget = {} if variables[_SWITCH] else {"thinking_budget_tokens": 0}
    return {"chat_template_kwargs": variables, **budget}


def with_thinking_as_asked(data: bytes, fields: Mapping[str, msgspec.Raw]) -> bytes:
    """Return a chat in OpenAI's form that asks engines for thoughts, or for none, in their own way.

    Clients use several fields for it: ``reasoning_effort``, ``reasoning``, ``thinking``, ``enable_thinking`` and
    ``think``. ``fields``: those of the JSON object ``data``.
    """
    reasoning, template = _object(fields, "reasoning"), _object(fields, "chat_template_kwargs")
    effort = _value(fields, "reasoning_effort") or reasoning.get("effort")
    words = (effort, _object(fields, "thinking").get("type"))
    switches = [_value(fields, name) for name in (_SWITCH, "think")] + [reasoning.get("enabled"), template.get(_SWITCH)]
    if any(word in _OFF for word in words) or any(each is False for each in switches):
        # A template may know efforts, but not this one.
        kept = {name: raw for name, raw in fields.items() if name != "reasoning_effort"}
        return msgspec.json.encode({**kept, **no_thinking(template)})
    if isinstance(effort, str) and "reasoning_effort" not in fields:
        return msgspec.json.encode({**fields, "reasoning_effort": effort})
    return data


def _value(fields: Mapping[str, msgspec.Raw], name: str) -> Any:
    return _any(fields[name]) if name in fields else None


def _object(fields: Mapping[str, msgspec.Raw], name: str) -> dict[str, Any]:
    value = _value(fields, name)
    return value if isinstance(value, dict) else {}
