"""``/status`` and ``/api/system/status``: the server's state in a few figures."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import falcon
import msgspec

from gateway.api.common.health_reports import HealthReports
from gateway.bus.session import SupervisorSession
from gateway.http.request_context import request_context
from protocol.messages.health import HealthReport

_SERVING: Final = frozenset({"ready", "draining"})


def status_body(health: HealthReport) -> dict[str, Any]:
    """Return the short form."""
    return {
        "status": health.status,
        "version": health.version,
        "uptime_secs": int(health.uptime),
        "models_loaded": sum(model.state in _SERVING for model in health.models),
        "active_requests": health.granted,
    }


def system_status_body(health: HealthReport, url: str, *, endpoints: bool) -> dict[str, Any]:
    """Return the long form. ``endpoints``: with the path of the bus, which only administrators may see."""
    return {
        "version": health.version,
        "uptime_secs": int(health.uptime),
        "models_loaded": sum(model.state in _SERVING for model in health.models),
        "http_endpoint": url,
        "ipc_endpoint": health.ipc_endpoint if endpoints else "",
        "default_model": health.default_alias or health.default_model or None,
        "stats": {
            "requests_total": health.counters.get("requests_total", 0),
            "tokens_generated": health.counters.get("tokens_generated", 0),
            "active_requests": health.granted,
            "gpu_available": health.gpu_available,
            "memory_used_bytes": health.memory_used,
            "memory_total_bytes": health.memory_total,
        },
    }


class StatusResource:
    """``GET /status``."""

    monitors: ClassVar[bool] = True

    def __init__(self, session: SupervisorSession) -> None:
        """Call the supervisor through ``session``."""
        self._health = HealthReports(session)

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer with the short form."""
        health = self._health.report(req.env)
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(status_body(health))


class SystemStatusResource:
    """``GET /api/system/status``."""

    monitors: ClassVar[bool] = True

    def __init__(self, session: SupervisorSession) -> None:
        """Call the supervisor through ``session``."""
        self._session = session
        self._health = HealthReports(session)

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer with the long form."""
        health = self._health.report(req.env)
        url = self._session.settings.base_url
        admin = request_context(req.env).is_admin
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(system_status_body(health, url, endpoints=admin))
