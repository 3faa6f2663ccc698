"""Why a worker ends its engine, or why the engine ended, as clients are told. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from protocol.failures import Code, Failure
from workers.backends.base import Backend
from workers.engine.exit_cause import EngineExit, ExitCause


def hangs(backend: Backend) -> Failure:
    """Return why an engine is ended that makes no progress with its requests."""
    return _of(backend, Code.HUNG, f"made no progress for {backend.silence:g} s and was ended")


def hangs_while_loading(backend: Backend) -> Failure:
    """Return why an engine is ended that makes no progress with its load."""
    return not_loaded(backend, f"made no progress for {backend.silence:g} s and was ended")


def silent(backend: Backend, reason: str) -> Failure:
    """Return why an engine is ended that does not answer."""
    return _of(backend, Code.HUNG, f"did not answer for {backend.silence:g} s and was ended", reason)


def useless(backend: Backend) -> Failure:
    """Return why an engine is ended that works on a request whose client left long ago."""
    what = f"worked on a request whose client had left {backend.silence:g} s ago, and was ended"
    return _of(backend, Code.HUNG, what)


def unusable(backend: Backend, reason: str) -> Failure:
    """Return why an engine is ended whose slots cannot be freed any more."""
    return _of(backend, Code.BACKEND_DIED, "does not report whether it is idle, and was ended", reason)


def over_limit(backend: Backend, used: int | None = None) -> Failure:
    """Return why an engine has ended that used too much memory. ``used``: bytes; None: the kernel refused it more."""
    what = "tried to use" if used is None else f"used {used / 1e9:.2f} GB of memory,"
    limit = f"more than memory_limit allows ({backend.memory_limit / 1e9:.2f} GB)"
    return _of(backend, Code.OUT_OF_MEMORY, f"{what} {limit}, and was ended")


def not_loaded(backend: Backend, what: str, reason: str = "") -> Failure:
    """Return why a load has failed. ``what``: what the engine did. ``reason``: more, for admins."""
    name = backend.spec.name
    return Failure(Code.LOAD_FAILED, f"{name} cannot be loaded: {backend.program} {what}", model=name, detail=reason)


def died(backend: Backend, exit_: EngineExit) -> Failure:
    """Return how an engine has ended that was not to end."""
    code = Code.OUT_OF_MEMORY if exit_.cause is ExitCause.MEMORY else Code.BACKEND_DIED
    return _of(backend, code, exit_.reason)


def by_request(ended: Failure | None, exit_: EngineExit, *, outgrown: bool) -> bool:
    """Return whether an engine may have died of a request. ``ended``: why lemonbus ended it, if it did.

    ``outgrown``: it took more memory than it was known to need. If it did not, and the kernel killed it, the machine had too little.
    """
    if ended is not None:
        return ended.code is Code.OUT_OF_MEMORY
    return exit_.cause is ExitCause.CRASH or (exit_.cause is ExitCause.MEMORY and outgrown)


def of_load(backend: Backend, ended: Failure | None, how: str, output: str) -> Failure:
    """Return why a load failed: ``ended`` if lemonbus ended the engine, then how it ended, then its last lines."""
    name, problem = backend.spec.name, backend.file_problem(output)
    code, why = (Code.MODEL_UNUSABLE, problem) if problem else (Code.LOAD_FAILED, backend.load_problem(output) or how)
    failure = ended or Failure(code, f"{name} cannot be loaded: {why}", model=name)
    return replace(failure, detail="\n".join(part for part in (failure.detail, how, output) if part))


def _of(backend: Backend, code: Code, what: str, reason: str = "") -> Failure:
    return Failure(code, f"{backend.program} of {backend.spec.name} {what}", model=backend.spec.name, detail=reason)
