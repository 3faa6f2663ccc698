"""What a worker reports about its engine: that it is ready, or why the load failed."""

from __future__ import annotations

from msgspec.structs import replace

from protocol.failures import Code, Failure
from protocol.messages.peers import EngineReady
from workers.backends.base import EngineFacts
from workers.engine.command_line import without_secrets
from workers.worker.engine_session import EngineSession


def engine_ready(session: EngineSession, facts: EngineFacts, parameters: int) -> EngineReady:
    """Return the report about a ready engine. ``parameters``: of its model; 0 if unknown."""
    engine = session.engine
    return EngineReady(
        slots=facts.slots,
        context=facts.context,
        engine_pid=engine.pid,
        backend_url=engine.url,
        seconds=session.seconds,
        version=facts.version,
        rss=engine.resident(),
        trained_context=session.backend.trained_context,
        parameters=parameters,
        gpu_layers=session.backend.gpu_layers,
        command=without_secrets(engine.command),
        restored_tokens=session.restored_tokens,
        leave_seconds=session.leave_seconds,
    )


def load_failure(session: EngineSession, how: str, output: str) -> Failure:
    """Return why a load failed: our own reason if lemonbus ended the engine, then how it ended, then its last lines."""
    name = session.spec.name
    problem = session.backend.file_problem(output)
    code, why = (Code.MODEL_UNUSABLE, problem) if problem else (Code.LOAD_FAILED, how)
    failure = session.failure or Failure(code, f"{name} cannot be loaded: {why}", model=name)
    return replace(failure, detail="\n".join(part for part in (failure.detail, how, output) if part))
