"""What ``keep_alive`` does: it loads or unloads a model, or says how long one stays after a request."""

from __future__ import annotations

from functools import partial
from typing import Any

from gateway.api.common.models.keep_alive import KeepAlive, idle_seconds
from gateway.bus.session import SupervisorSession
from gateway.http.request_context import RequestContext
from protocol.failures import Code, LemonbusError
from protocol.messages.models import Loaded, LoadModel, UnloadModel


def ttl_after_request(context: RequestContext, keep_alive: KeepAlive | None) -> float | None:
    """Return the idle seconds after which the model of a request is unloaded from now on; None: as it is.

    Only a caller that may change the server decides that.  Another one may not have a model unloaded (``forbidden``); any
    other value of it changes nothing, because many clients send one with each request.
    """
    seconds = idle_seconds(keep_alive)
    if seconds == 0:
        context.check_change("unload a model")
    return seconds if seconds is not None and context.is_admin else None


def load(session: SupervisorSession, env: dict[str, Any], model: str, ttl: float | None) -> None:
    """Wait until the model is ready, to be unloaded after ``ttl`` idle seconds; None: as it is or would be.

    One that is loaded stays as it is otherwise.
    """
    session.call(env, partial(LoadModel, model=model, ttl=ttl), Loaded)


def unload(session: SupervisorSession, env: dict[str, Any], model: str) -> None:
    """Wait until the model is unloaded; does nothing if it is not loaded."""
    try:
        session.call(env, partial(UnloadModel, model=model), list[str])
    except LemonbusError as problem:
        if problem.failure.code is not Code.NOT_LOADED:
            raise
