"""Reserves a request at the supervisor before anything is done for it that a refused request must not cause.

The supervisor refuses a reservation as it would later refuse the request: for an unknown model, for a key that may not
use it or is over its limits. Otherwise it counts the request, once: the request takes the reservation over.
"""

from __future__ import annotations

from typing import Any

from gateway.http.request_context import request_context
from gateway.requests.interfaces import RequestSession
from protocol.messages.work import ReserveRequest


def reserve(session: RequestSession, env: dict[str, Any], endpoint: str, model: str) -> None:
    """Reserve the inference request that the HTTP request of ``env`` will become, unless that was done.

    Raises ``LemonbusError`` if it is refused.
    """
    context = request_context(env)
    if context.reservation is not None:
        return
    caller, refusal = context.caller, context.download_refusal
    call = session.start_call(
        env, lambda number: ReserveRequest(number, model, endpoint, caller, refusal), endless=True
    )
    context.exchange = call
    try:
        call.next()
    except BaseException:
        call.close()
        raise
    # The reservation may outlive the connection: a background response takes it over.
    call.stop_watching()
    context.reservation = call
