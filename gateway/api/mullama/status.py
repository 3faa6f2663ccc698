"""``/status`` and ``/api/system/status``: the server's state in a few figures."""

from __future__ import annotations

from typing import Final

import msgspec

from gateway.api.common.health_reports import health_report
from gateway.api.common.routes import HttpCaller, Nothing, route
from protocol.messages.health import HealthReport

_SERVING: Final = frozenset({"ready", "draining"})


class ShortStatus(msgspec.Struct):
    """The server in a few figures."""

    status: str
    version: str
    uptime_secs: int
    models_loaded: int
    active_requests: int


class SystemStats(msgspec.Struct, kw_only=True):
    """What the server has done, and what it uses."""

    requests_total: int
    tokens_generated: int
    active_requests: int
    gpu_available: bool
    memory_used_bytes: int
    """Memory of the engines of loaded models."""
    memory_total_bytes: int


class SystemStatus(msgspec.Struct):
    """The server in more figures."""

    version: str
    uptime_secs: int
    models_loaded: int
    http_endpoint: str
    ipc_endpoint: str
    default_model: str | None
    stats: SystemStats


@route("GET", "/api/system/status", monitors=True)
def show_system_status(caller: HttpCaller, _request: Nothing) -> SystemStatus:
    """Shows the server's state."""
    health = health_report(caller)
    return SystemStatus(
        version=health.version,
        uptime_secs=int(health.uptime),
        models_loaded=_loaded(health),
        http_endpoint=caller.session.settings.base_url,
        ipc_endpoint=health.ipc_endpoint if caller.context.is_admin else "",
        default_model=health.default_alias or health.default_model or None,
        stats=SystemStats(
            requests_total=health.counters.get("requests_total", 0),
            tokens_generated=health.counters.get("tokens_generated", 0),
            active_requests=health.granted,
            gpu_available=health.gpu_available,
            memory_used_bytes=health.memory_used,
            memory_total_bytes=health.memory_total,
        ),
    )


@route("GET", "/status", monitors=True)
def show_status(caller: HttpCaller, _request: Nothing) -> ShortStatus:
    """Shows the server's state in short."""
    health = health_report(caller)
    return ShortStatus(health.status, health.version, int(health.uptime), _loaded(health), health.granted)


def _loaded(health: HealthReport) -> int:
    return sum(model.state in _SERVING for model in health.models)
