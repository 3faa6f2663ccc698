"""``/internal/drain`` and ``/internal/undrain``: the server takes no new requests, or takes them again."""

from __future__ import annotations

import msgspec

from gateway.api.common.operations import BODY
from gateway.api.common.routes import HttpCaller, Nothing, route
from protocol.messages.readiness import DrainReport, GetDrain, SetDrain


class DrainRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A drain has no fields."""


class DrainAnswer(msgspec.Struct):
    """Whether the server is drained, and the requests that it still has."""

    drained: bool
    """Whether new requests are refused with 503 ``drained``, until an undrain or a restart."""
    running: int
    queued: int
    """Those that wait, or of which pictures or recordings are still being read: they were accepted before the drain."""


def _answer(report: DrainReport) -> DrainAnswer:
    return DrainAnswer(report.drained, report.running, report.queued)


@route("GET", "/internal/drain", monitors=True)
def show_drain(caller: HttpCaller, _request: Nothing) -> DrainAnswer:
    """Says whether the server is drained, and how many requests it still has."""
    return _answer(caller.ask(GetDrain, DrainReport))


@route("POST", "/internal/drain", changes=True, body_required=False, failures=BODY)
def drain_server(caller: HttpCaller, _request: DrainRequest) -> DrainAnswer:
    """Takes no new requests from now on; those that were accepted before go on.

    Everything else is still answered. A drain ends with an undrain or a restart, not with a reload or an upgrade. A
    second one changes nothing.
    """
    return _answer(caller.ask(lambda number: SetDrain(number, drained=True), DrainReport))


@route("POST", "/internal/undrain", changes=True, body_required=False, failures=BODY)
def undrain_server(caller: HttpCaller, _request: DrainRequest) -> DrainAnswer:
    """Takes new requests again."""
    return _answer(caller.ask(lambda number: SetDrain(number, drained=False), DrainReport))
