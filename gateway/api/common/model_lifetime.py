"""Loads and unloads a model for ``keep_alive``: by itself, or after an answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from gateway.bus.session import SupervisorSession
from protocol.failures import Code, LemonbusError
from protocol.messages.admin import Loaded, LoadModel, UnloadModel
from protocol.runtime import logs


def load(session: SupervisorSession, env: dict[str, Any], model: str) -> None:
    """Wait until the model is ready; one that is loaded stays as it is."""
    session.call(env, partial(LoadModel, model=model), Loaded)


def unload(session: SupervisorSession, env: dict[str, Any], model: str) -> None:
    """Wait until the model is unloaded; does nothing if it is not loaded."""
    try:
        session.call(env, partial(UnloadModel, model=model), list[str])
    except LemonbusError as problem:
        if problem.failure.code is not Code.NOT_LOADED:
            raise


def unload_after_answer(session: SupervisorSession, env: dict[str, Any]) -> Callable[[str], None]:
    """Return a function that has a model unloaded when its requests have ended, and does not wait for that."""

    def begin_unload(model: str) -> None:
        try:
            session.start_call(env, partial(UnloadModel, model=model)).close()
        except LemonbusError as problem:
            # The client has its answer already.
            logs.get_logger().warning("not unloaded", model=model, code=problem.failure.code.value)

    return begin_unload
