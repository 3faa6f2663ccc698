"""``params``: the sampling defaults of all models, as the spec and the preview document them."""

from __future__ import annotations

from typing import Literal

import msgspec

from gateway.api.common.operations import BODY, STORAGE
from gateway.api.common.routes import HttpCaller, Nothing, route
from protocol.messages.models import GetParams, ParamsReport, SetParams
from protocol.models.sampling import SamplingChange, SamplingValue


class ParamsAnswer(msgspec.Struct):
    """All sampling defaults, and the names of those that were set."""

    status: Literal["success"]
    message: str
    params: dict[str, SamplingValue]
    set: list[str]
    ignored: dict[str, list[str]] | msgspec.UnsetType = msgspec.UNSET


@route("GET", "params")
def show_params(caller: HttpCaller, _request: Nothing) -> ParamsAnswer:
    """Shows the sampling defaults."""
    return _answer(caller.ask(GetParams, ParamsReport), "Generation parameters")


@route(
    "POST",
    "params",
    changes=True,
    body_required=False,
    failures=BODY | STORAGE,
    examples={"two": {"temperature": 0.2, "max_length": 1000}},
)
def set_params(caller: HttpCaller, change: SamplingChange) -> ParamsAnswer:
    """Sets sampling defaults of all models."""
    values = msgspec.to_builtins(change)
    report = caller.ask(lambda number: SetParams(number, values), ParamsReport)
    return _answer(report, "Generation parameters set successfully")


def _answer(report: ParamsReport, message: str) -> ParamsAnswer:
    return ParamsAnswer("success", message, report.params, report.set, report.ignored or msgspec.UNSET)
