"""What ``keep_alive`` and ``num_ctx`` do: they load or unload a model, and say how long one stays and how large its context is."""

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
    """Ollama's ``options`` of a load that count here; the others (``num_gpu``…) are ignored."""

    num_ctx: Annotated[int, Meta(ge=-1, le=MAX_CONTEXT)] | None = None
    """Tokens that the context is to have; 0 and -1: as it is."""

    def wanted(self, context: RequestContext) -> int:
        """Return the tokens of the context that the model is to be loaded with, 0 if it stays as it is.

        Only a caller that may change the server decides that. The value of another one changes nothing, because many clients
        send one with each request.
        """
        return max(self.num_ctx or 0, 0) if context.is_admin else 0


def ttl_after_request(context: RequestContext, keep_alive: KeepAlive | None) -> float | None:
    """Return the idle seconds after which the model of a request is unloaded from now on; None: as it is.

    Only a caller that may change the server decides that.  Another one may not have a model unloaded (``forbidden``); any
    other value of it changes nothing, because many clients send one with each request.
    """
    seconds = idle_seconds(keep_alive)
    if seconds == 0:
        context.check_change("unload a model")
    return seconds if seconds is not None and context.is_admin else None


def load(session: SupervisorSession, env: dict[str, Any], model: str, ttl: float | None, size: int) -> None:
    """Wait until the model is ready, to be unloaded after ``ttl`` idle seconds; None: as it is or would be.

    One that is loaded stays as it is otherwise, if it has a context of ``size`` tokens.
    """
    session.call(env, partial(LoadModel, model=model, ttl=ttl, context=size), Loaded)


def unload(session: SupervisorSession, env: dict[str, Any], model: str) -> None:
    """Wait until the model is unloaded; does nothing if it is not loaded."""
    try:
        session.call(env, partial(UnloadModel, model=model), list[str])
    except LemonbusError as problem:
        if problem.failure.code is not Code.NOT_LOADED:
            raise
