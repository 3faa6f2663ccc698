"""The effects of ``keep_alive`` and ``num_ctx``: loading or unloading a model, how long it stays, and its context size."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from gateway.api.common.models.keep_alive import KeepAlive, idle_seconds
from gateway.bus.session import SupervisorSession
from gateway.http.request_context import RequestContext
from protocol.failures import Code, LemonbusError
from protocol.messages.models import Loaded, LoadModel, UnloadModel

MAX_CONTEXT: Final = 2**24


class ContextOption(msgspec.Struct, kw_only=True):
    """Ollama's ``options`` of a load that have an effect here. The others (``num_gpu``…) are ignored."""

    num_ctx: Annotated[int, Meta(ge=-1, le=MAX_CONTEXT)] | None = None
    """Context tokens that the model must have at least; 0 and -1: leave as it is."""

    def wanted(self, context: RequestContext) -> int:
        """Return the context tokens that the model must be loaded with at least; 0 to leave it as it is.

        Only a caller that may change the server decides this. Another caller's value has no effect, because many
        clients send one with each request.
        """
        return max(self.num_ctx or 0, 0) if context.is_admin else 0


def ttl_after_request(context: RequestContext, keep_alive: KeepAlive | None) -> float | None:
    """Return the idle seconds after which the model of a request is unloaded from now on; None: leave as it is.

    Only a caller that may change the server decides this. Another caller may not unload a model (``forbidden``); any
    other value of it has no effect, because many clients send one with each request.
    """
    seconds = idle_seconds(keep_alive)
    if seconds == 0:
        context.check_change("unload a model")
    return seconds if seconds is not None and context.is_admin else None


def load(session: SupervisorSession, env: dict[str, Any], model: str, ttl: float | None, size: int) -> None:
    """Wait until the model is ready, to be unloaded after ``ttl`` idle seconds; None: its usual time.

    Otherwise, a loaded model stays as it is if its context has ``size`` tokens.
    """
    session.call(env, partial(LoadModel, model=model, ttl=ttl, context=size), Loaded)


def unload(session: SupervisorSession, env: dict[str, Any], model: str) -> None:
    """Wait until the model is unloaded; does nothing if it is not loaded."""
    try:
        session.call(env, partial(UnloadModel, model=model), list[str])
    except LemonbusError as problem:
        if problem.failure.code is not Code.NOT_LOADED:
            raise
