"""No message contains a reading of its sender's clock, because the receiver may run on another machine."""

from __future__ import annotations

import importlib
import pkgutil
import re
import types
from collections.abc import Iterator
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from protocol import messages
from protocol.messages.recovery import AttemptSnapshot
from protocol.messages.work import AttemptEnded
from protocol.times import Age, Seconds, UnixSecond, UnixTime

DATES = {
    *(("EndedRequest", "ended_at"), ("ModelDeath", "at"), ("ModelFailure", "retry_at"), ("ModelLoad", "asked_at")),
    *(("ModelOverview", name) for name in ("expires_at", "last_use", "loaded_at")),
    *((struct, "time") for struct in ("RunningServer", "OverviewReport")),
    *(("ServerOverview", "started_at"), ("Sample", "at"), ("NodeOverview", "since")),
    *(("RequestOverview", name) for name in ("arrived_at", "granted_at", "first_token_at")),
    ("ApiKey", "created"),
    ("ApiKey", "expires"),  # the operator sets it
    ("ModelDetails", "expires_at"),
    ("ModelDetails", "modified"),
    ("ModelEntry", "created"),
    ("RunningModel", "expires_at"),
    ("RunningModel", "last_use"),
    ("Welcome", "clock"),  # answers of other nodes are dated by it
}
"""Dates that clients see, or that the operator set: struct and field."""
NOT_TIMES = {
    *((struct, "tokens_per_second") for struct in ("EndedRequest", "ModelOverview", "Sample")),
    ("PlaceMemory", "used_percent"),
    ("Capacity", "used_percent"),
    ("DeviceReading", "used_percent"),
    ("EngineLimits", "cpus"),
    *(("MachineUsage", name) for name in ("cpu_percent", "gpu_percent")),
    ("LoadOption", "least"),
    ("LoadOption", "most"),
    ("ModelEntry", "size"),
    *((struct, "resources") for struct in ("NodeFacts", "NodeNeeds")),
    ("PlaceNeed", "per_token"),
}
"""Other numbers with a fraction."""
INSTANT = re.compile(r"(^|_)(at|since|began|begun|started|ended|created|modified|expires|until|deadline|time)$")


def parts(kind: Any) -> Iterator[Any]:
    """Yield a type and everything that it is made of; the times as they were declared."""
    yield kind
    if get_origin(kind) is not Annotated:
        for part in get_args(kind):
            yield from parts(part)


def structs() -> list[type[msgspec.Struct]]:
    """All structs of the messages, and those in their fields."""
    found: dict[type[msgspec.Struct], None] = {}
    for module in pkgutil.iter_modules(messages.__path__, "protocol.messages."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, msgspec.Struct):
                found[value] = None
    waiting = list(found)
    while waiting:
        for kind in get_type_hints(waiting.pop(), include_extras=True).values():
            for part in parts(kind):
                if isinstance(part, type) and issubclass(part, msgspec.Struct) and part not in found:
                    found[part] = None
                    waiting.append(part)
    return sorted(found, key=lambda struct: struct.__name__)


def wrong_fields(struct: type[msgspec.Struct]) -> Iterator[str]:
    for name, kind in get_type_hints(struct, include_extras=True).items():
        field, declared = (struct.__name__, name), list(parts(kind))
        union = get_origin(kind) in (Union, types.UnionType)
        is_date = any(part in (UnixTime, UnixSecond) for part in declared)
        if is_date and field not in DATES:
            yield f"{name} is a date, which no client sees"
        elif not is_date and INSTANT.search(name) and any(part in (int, float, Seconds) for part in declared):
            yield f"{name} sounds like an instant"
        elif float in (get_args(kind) if union else (kind,)) and not is_option(kind) and field not in NOT_TIMES:
            yield f"{name} is neither an Age, nor Seconds, nor a date"


def is_option(kind: Any) -> bool:
    """Whether a field may also be text: then it is a value of the model's, not a time."""
    return str in get_args(kind)


@pytest.mark.parametrize("struct", structs(), ids=lambda struct: struct.__name__)
def test_no_field_is_an_instant(struct: type[msgspec.Struct]) -> None:
    assert list(wrong_fields(struct)) == []


def test_the_check_sees_what_it_looks_for() -> None:
    class Late(msgspec.Struct):
        ended_at: float
        began: int
        seconds: float
        shown: UnixTime
        left: Seconds
        age: Age | None = None

    Late.__annotations__ = dict(Late.__annotations__)
    names = [problem.partition(" ")[0] for problem in wrong_fields(Late)]
    assert names == ["ended_at", "began", "seconds", "shown"]
    assert {AttemptSnapshot, AttemptEnded} <= set(structs())
