"""How Ollama's fields change what is loaded: ``keep_alive``, how long a model stays after its last request, and ``num_ctx``, its context."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from gateway.bus.session import SupervisorSession
from gateway.http.request_context import RequestContext
from protocol.failures import Code, LemonbusError, invalid
from protocol.messages.models import Loaded, LoadModel, UnloadModel
from protocol.models.recipes import MAX_CTX_SIZE
from protocol.times import NEVER_UNLOADED

KeepAlive = int | float | str
"""Seconds, or a duration such as ``5m`` or ``1h30m``; negative: forever."""

_LONGEST_S: Final = 1e12
_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_DURATION: Final = re.compile(rf"[+-]?(?:{_PART.pattern})+", re.ASCII)
_SECONDS: Final = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)", re.ASCII)
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def idle_seconds(keep_alive: KeepAlive | None) -> float | None:
    """Return a model's :data:`~protocol.times.IdleTime`; None if unspecified.

    Raises ``invalid_request`` for anything that is not a duration.
    """
    if keep_alive is None:
        return None
    seconds = _parse(keep_alive) if isinstance(keep_alive, str) else keep_alive
    return NEVER_UNLOADED if seconds < 0 or seconds > _LONGEST_S else float(seconds)


def _parse(text: str) -> float:
    if len(text) <= 64 and _SECONDS.fullmatch(text):
        return float(text)
    if len(text) > 64 or not _DURATION.fullmatch(text):
        message = "`keep_alive` must be a number of seconds or a duration such as 5m; 0 unloads the model, -1 keeps it"
        raise invalid(message, "keep_alive")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    return -seconds if text.startswith("-") else seconds


class ContextOption(msgspec.Struct, kw_only=True):
    """Ollama's ``options`` of a load that have an effect here. The others (``num_gpu``…) are ignored."""

    num_ctx: Annotated[int, Meta(ge=-1, le=MAX_CTX_SIZE)] | None = None
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
