"""What a worker reports about its engine: that it is ready, and its command line without secrets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from protocol.messages.engines import EngineReady
from workers.backends.engine_facts import EngineFacts
from workers.worker.engine_session import EngineSession

HIDDEN: Final = "***"
_SECRET_FLAG: Final = re.compile(r"--?[\w-]*(?:key|token|secret|password|passwd)\b(?!-)", re.IGNORECASE)
"""``--api-key``, but not ``--api-key-file``, whose value is a path and not secret."""


def engine_ready(session: EngineSession, facts: EngineFacts) -> EngineReady:
    """Return the report about a ready engine."""
    engine = session.engine
    return EngineReady(
        slots=facts.slots,
        context=facts.context,
        engine_pid=engine.pid,
        backend_url=engine.url,
        seconds=session.seconds,
        version=facts.version,
        rss=engine.resident(),
        memory=engine.proportional(),
        memory_difference=session.memory_difference,
        trained_context=session.backend.trained_context,
        parameters=session.backend.model_facts.parameters,
        gpu_layers=session.backend.gpu_layers,
        command=without_secrets(engine.command),
        restored_tokens=session.restored_tokens,
        leave_seconds=session.leave_seconds,
    )


def without_secrets(command: Sequence[str]) -> list[str]:
    """Return the command with ``***`` instead of the values of flags that are named after a secret."""
    shown: list[str] = []
    hide = False
    for word in command:
        name, equals, _ = word.partition("=")
        is_secret = _SECRET_FLAG.fullmatch(name) is not None
        if hide:
            shown.append(HIDDEN)
        elif is_secret and equals:
            shown.append(f"{name}={HIDDEN}")
        else:
            shown.append(word)
        hide = not hide and is_secret and not equals
    return shown
