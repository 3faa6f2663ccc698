"""Loaded models and verdicts, as the tables of evictions have them."""

from __future__ import annotations

from supervisor.scheduler.eviction import Evict, LoadedModel, Verdict


def loaded_model(model: str, last_use: float = 0.0, *, busy: bool = False, **more: object) -> LoadedModel:
    return LoadedModel(model, str(more.pop("type", "llm")), last_use, busy, **more)  # type: ignore[arg-type]


def without_reasons(verdict: Verdict) -> Verdict:
    return verdict._replace(reasons=[]) if isinstance(verdict, Evict) else verdict
