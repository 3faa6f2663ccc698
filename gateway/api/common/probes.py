"""``/live`` and ``/health``: probes for process monitors, without a version prefix. They do not ask the supervisor."""

from __future__ import annotations

from typing import Literal

import msgspec

from gateway.api.common.routes import HttpCaller, Nothing, route
from gateway.requests.admission_states import AdmissionState


class Probe(msgspec.Struct):
    """The server answers."""

    status: Literal["ok", "recovering"]
    """``recovering``: requests are accepted, and wait until the next supervisor has taken over."""


@route("GET", "/live")
def show_liveness(_caller: HttpCaller, _request: Nothing) -> Probe:
    """Whether this process answers."""
    return Probe("ok")


@route("GET", "/health")
def show_readiness(caller: HttpCaller, _request: Nothing) -> Probe:
    """Whether this process accepts requests: 503 while it does not.

    Requests that wait for a new supervisor are accepted.
    """
    caller.session.admission.check_readiness()
    return Probe("recovering" if caller.session.admission.state is AdmissionState.RECOVERING else "ok")
