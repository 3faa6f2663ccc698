"""The limits of the scheduler, taken from the settings, which it does not know."""

from __future__ import annotations

from protocol.config.settings import Settings
from supervisor.scheduler.backoff import BackoffPolicy
from supervisor.scheduler.inputs import SchedulerLimits


def scheduler_limits(settings: Settings) -> SchedulerLimits:
    """Return how much may be loaded and may wait, and how failed loads are repeated."""
    restarts = BackoffPolicy(
        settings.backoff_first, settings.backoff_most, settings.breaker_deaths, settings.breaker_window
    )
    return SchedulerLimits(
        settings.max_loaded_models,
        settings.queue_requests,
        settings.queue_bytes,
        settings.grace,
        restarts,
        memory_reserve=settings.memory_reserve,
        device_memory_reserve=settings.device_memory_reserve,
        scales=settings.placement == "ray",
        verbose=settings.log_level in ("debug", "trace"),
    )
