"""What answers of several API families say about a model: its name, its size in parameters, and what it can do. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Final

from msgspec import Meta

from gateway.api.common.request_fields import MAX_NAME_LENGTH
from gateway.api.common.routes import HttpCaller
from protocol.failures import Code, Failure, LemonbusError
from protocol.messages.model_details import DescribeModels, ModelDetails
from protocol.messages.models import ModelEntry
from protocol.models.recipes import ModelType

ModelName = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_LENGTH)]
"""A model's name in a request."""
_EARLIEST: Final = -62135596800
_LATEST: Final = 253402300799
"""The first second of the year 1 and the last of the year 9999: the range of Python's dates."""
_PARAMETERS_IN_NAME: Final = re.compile(r"(?<![\w.])(\d{1,4}(?:\.\d{1,3})?)([bm])(?![a-z0-9])", re.IGNORECASE)
_FACTORS: Final = {"b": 10**9, "m": 10**6}
_TOOLS: Final = re.compile(r"\btools\b")
_THINKING: Final = re.compile(r"<think>|enable_thinking|reasoning_content|<\|channel\|>")
_INSERT: Final = ("tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id")


def describe(caller: HttpCaller, name: str = "") -> list[ModelDetails]:
    """Return the downloaded models that the caller's key may use, or one of them; raises ``model_not_found``."""
    context = caller.context
    unknown = Failure(Code.MODEL_NOT_FOUND, f"model {name} not found", model=name)
    try:
        found = caller.ask(lambda number: DescribeModels(number, name), list[ModelDetails])
    except LemonbusError as problem:
        if context.models and problem.failure.code is Code.MODEL_NOT_FOUND:
            raise unknown.raised() from None  # the message names similar models
        raise
    shown = [details for details in found if context.may_use(details.entry.id)]
    if name and found and not shown:
        raise unknown.raised()
    return shown


def short_name(entry: ModelEntry) -> str:
    """Return the model's name in the form ``NAME:TAG`` if it has one, else its registered name."""
    return entry.aliases[0] if entry.aliases else entry.id


def repository(checkpoint: str) -> str:
    """Return the repository of a checkpoint, without the variant."""
    return checkpoint.partition(":")[0]


def parameter_count(details: ModelDetails) -> int:
    """Return how many parameters a model has: from its file, else from its name, else 0."""
    if details.facts.parameters:
        return details.facts.parameters
    for name in (details.entry.id, details.entry.checkpoint):
        found = _PARAMETERS_IN_NAME.search(name)
        if found:
            return round(float(found[1]) * _FACTORS[found[2].lower()])
    return 0


def generates(details: ModelDetails) -> bool:
    """Return whether a model writes text."""
    return details.entry.type == ModelType.LLM


def takes_images(details: ModelDetails) -> bool:
    """Return whether a chat may have images."""
    return generates(details) and "vision" in details.entry.labels


def takes_tools(details: ModelDetails) -> bool:
    """Return whether a chat may have tools: the model's template must use them."""
    return generates(details) and bool(_TOOLS.search(details.facts.template) or "tool-calling" in details.entry.labels)


def thinks(details: ModelDetails) -> bool:
    """Return whether a model writes down its thoughts before it answers."""
    return generates(details) and bool(_THINKING.search(details.facts.template) or "reasoning" in details.entry.labels)


def inserts(details: ModelDetails) -> bool:
    """Return whether a model can fill a gap in a text, which needs certain tokens in its vocabulary."""
    return generates(details) and any(key in details.facts.metadata for key in _INSERT)


def forces_json(details: ModelDetails) -> bool:
    """Return whether an answer can be forced to be JSON."""
    return generates(details) and details.forced_json


def rfc3339(seconds: int) -> str:
    """Return a time in RFC 3339's form.

    A file may have a time outside the years 1 to 9999: it becomes the nearest one inside.
    """
    bounded = max(_EARLIEST, min(seconds, _LATEST))
    # strftime writes years before 1000 with fewer than four digits.
    return datetime.fromtimestamp(bounded, UTC).isoformat().replace("+00:00", "Z")
