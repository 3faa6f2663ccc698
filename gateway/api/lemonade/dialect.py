"""Lemonade's routes, and those of its preview."""

from __future__ import annotations

from gateway.api.common.dialect import VERSION_PREFIXES, Dialect, Routes
from gateway.api.common.operations import Documentation
from gateway.api.common.route_resource import resources
from gateway.api.lemonade import (
    aliases,
    downloads,
    health,
    install,
    load,
    log_level,
    model_files,
    model_options,
    params,
    preview_load,
    stats,
    system_info,
    system_stats,
    update_checks,
)
from gateway.bus.session import SupervisorSession
from gateway.logs.stream import LogStreamResource


class LemonadeDialect(Dialect):
    """Lemonade's API; its errors have the default form."""

    def routes(self, session: SupervisorSession) -> Routes:
        """Return the routes: the log stream with and without a version prefix, and the others."""
        versioned = [f"{prefix}/logs/stream" for prefix in VERSION_PREFIXES]
        return {
            **dict.fromkeys(["/logs/stream", *versioned], LogStreamResource(session)),
            **resources(
                session,
                load,
                log_level,
                params,
                model_files,
                downloads,
                aliases,
                model_options,
                health,
                stats,
                install,
                system_info,
                system_stats,
                update_checks,
            ),
            **preview_load.routes(session),
        }

    def documentation(self) -> Documentation:
        """Return what the routes take and answer."""
        from gateway.api.lemonade.documentation import DOCUMENTATION  # noqa: PLC0415 - only when the document is asked for

        return DOCUMENTATION
