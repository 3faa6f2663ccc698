"""Checks a model before its engine is started, so that a load that must fail evicts no other model."""

from __future__ import annotations

from msgspec.structs import replace

from protocol.failures import Code, Failure
from protocol.messages.engines import ModelChecked
from protocol.models.memory import HOST, MemoryEstimate
from protocol.models.recipes import ModelSpec
from protocol.runtime.accounts import check_user
from workers.backends.base import Backend
from workers.backends.engine_facts import ModelFacts


def check_model(spec: ModelSpec, backend: Backend) -> tuple[ModelChecked, ModelFacts]:
    """Check files, flags and executable; return the report and what the files' headers contain.

    Raises ``model_unusable`` for a file, ``invalid_request`` for a flag, ``insufficient_memory`` for a limit.
    """
    backend.check()
    check_user(spec.limits.user)
    try:
        facts = backend.examine()
    except FileNotFoundError as problem:
        raise _unusable(spec, "its file is missing", problem.filename) from None
    except OSError as problem:
        raise _unusable(spec, f"its file cannot be read ({problem.strerror})", problem.filename) from None
    except ValueError as problem:
        raise _unusable(spec, str(problem), spec.path) from None
    backend.model_facts = facts
    backend.model_facts = facts = facts._replace(estimate=backend.memory())
    _check_limit(spec, backend.memory_limit, facts.estimate)
    return ModelChecked(facts.estimate), facts


def _check_limit(spec: ModelSpec, limit: int, estimate: MemoryEstimate) -> None:
    """Refuse a model whose weights alone exceed its limit. Of the rest, an engine may never touch all that is estimated."""
    weights = estimate.parts.get("weights", 0)
    if limit and weights > limit and not estimate.places.keys() - {HOST}:
        needs = f"its weights are {weights / 1e9:.2f} GB, and memory_limit allows {limit / 1e9:.2f} GB"
        message = f"{spec.name} cannot be loaded: {needs}. Raise memory_limit, or choose a smaller quantization"
        raise Failure(Code.INSUFFICIENT_MEMORY, message, model=spec.name).raised()


def with_context(spec: ModelSpec, context: int) -> ModelSpec:
    """Return a model's spec with the context that was chosen for it; 0: as its options say."""
    return replace(spec, options={**spec.options, "ctx_size": context}) if context else spec


def _unusable(spec: ModelSpec, reason: str, path: object) -> Exception:
    message = f"{spec.name} cannot be loaded: {reason}"
    return Failure(Code.MODEL_UNUSABLE, message, model=spec.name, detail=str(path or spec.path)).raised()
