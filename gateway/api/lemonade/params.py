"""``params``: the sampling defaults of all models, as the spec and the preview document them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from gateway.api.common.operations import BODY
from gateway.api.common.routes import HttpCaller, Nothing, route
from protocol.messages.models import GetParams, ParamsReport, SetParams
from protocol.models.sampling import SamplingValue, check_params


class ParamsRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Values to set. Null resets a value, and missing ones stay."""

    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=0)] | None = None
    min_length: Annotated[int, Meta(ge=0)] | None = None
    max_length: Annotated[int, Meta(ge=1)] | None = None
    do_sample: bool | None = None


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
    failures=BODY,
    examples={"two": {"temperature": 0.2, "max_length": 1000}},
)
def set_params(caller: HttpCaller, _request: ParamsRequest) -> ParamsAnswer:
    """Sets sampling defaults of all models."""
    values = check_params(caller.fields)  # of which null is one
    report = caller.ask(lambda number: SetParams(number, values), ParamsReport)
    return _answer(report, "Generation parameters set successfully")


def _answer(report: ParamsReport, message: str) -> ParamsAnswer:
    return ParamsAnswer("success", message, report.params, report.set, report.ignored or msgspec.UNSET)
