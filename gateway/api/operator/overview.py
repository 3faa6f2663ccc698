"""``/internal/overview``: the running server at one moment, the stream of its changes, and the cancellation of a request."""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec

from gateway.api.common.operations import EVENT_STREAM, NOT_FOUND, Stream
from gateway.api.common.routes import Content, HttpCaller, Nothing, route
from gateway.api.common.server_sent_events import MEDIA_TYPE
from gateway.overview.view import Overview, overview_for, viewer_of
from protocol.failures import invalid
from protocol.messages.overview import CancelRequest, GetOverview, OverviewReport

_PATH: Final = "/internal/overview"
_ID: Final = re.compile(r"([a-z0-9]{1,32}):([0-9]{1,18})")
_EXAMPLE: Final = (
    'event: overview\ndata: {"time":1764180000.5,"running":1,"waiting":0}\n\n'
    'event: history\ndata: {"step_s":10,"samples":[{"at":1764179997.0,"running":1}]}\n\n'
    'event: patch\ndata: {"time":1764180001.5,"requests":{"g1f2e3d4c:7":{"tokens":42}}}\n\n'
    'event: sample\ndata: {"at":1764180007.0,"running":1,"tokens_per_second":38.4}\n\n'
    'event: error\ndata: {"error":"the server is stopping","code":"draining","request_id":"r1"}\n\n'
)


@route("GET", _PATH, monitors=True, secret=True)
def show_overview(caller: HttpCaller, _request: Nothing) -> Overview:
    """Shows the running server: models, requests in flight, the last ones that ended, memory, downloads.

    An administrator sees everything. Any other key sees the models that it may use and its own requests; others are counted.
    """
    report = caller.ask(GetOverview, OverviewReport)
    return overview_for(report, viewer_of(caller.context))


@route("GET", _PATH + "/stream", monitors=True, stream=Stream(EVENT_STREAM, _EXAMPLE))
def follow_overview(caller: HttpCaller, _request: Nothing) -> Content:
    """Sends the overview, then each second what has changed.

    The first event is `overview`, with the answer of `GET /internal/overview`, then `history`, with the samples of the last
    hour. `patch` follows each second: a JSON Merge Patch (RFC 7396) of the overview, with at least its `time`. A `sample`
    comes every ten seconds. A pause means that no supervisor answers at the moment. The stream ends with an `error`.
    """
    from gateway.overview.followers import OverviewFollowers  # noqa: PLC0415 - gevent, which the command line does not need

    return Content(MEDIA_TYPE, caller.session.part(OverviewFollowers).follow(caller.env))


class RequestInFlight(msgspec.Struct):
    """A request, by the id that the overview has for it."""

    id: str


class CancelledRequest(msgspec.Struct):
    """The request that was cancelled."""

    status: Literal["success"]
    id: str


@route("DELETE", "/internal/requests/{id}", changes=True, action="cancel a request", failures=NOT_FOUND)
def cancel_request(caller: HttpCaller, request: RequestInFlight) -> CancelledRequest:
    """Cancels a request in flight. Its client gets the error `cancelled_by_operator`, and its engine stops at once."""
    parts = _ID.fullmatch(request.id)
    if parts is None:
        raise invalid("an id of a request in flight looks like g1f2e3d4c:7: GET /internal/overview has them", "id")
    key = caller.context.api_key
    by = key.name if key is not None else ""
    caller.ask(lambda number: CancelRequest(number, parts[1], int(parts[2]), by), type(None))
    return CancelledRequest("success", request.id)
