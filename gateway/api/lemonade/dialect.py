"""Lemonade's routes, and those of its preview."""

from __future__ import annotations

from gateway.api.common.dialect import Dialect, Routes, versioned
from gateway.api.common.operations import Documentation
from gateway.api.lemonade import delete, health, install, load, params, pin, pull, pull_variants, system_info
from gateway.bus.session import SupervisorSession
from gateway.logs.stream import LogStreamResource


class LemonadeDialect(Dialect):
    """Lemonade's API; its errors have the default form."""

    def routes(self, session: SupervisorSession) -> Routes:
        """Return the routes: the log stream, the name that Lemonade gives ``pin``, and the others under every version prefix."""
        routes: Routes = {
            "load": load.LoadResource(session),
            "unload": load.UnloadResource(session),
            "pin": pin.PinResource(session),
            "delete": delete.DeleteResource(session),
            "params": params.ParamsResource(session),
            "pull": pull.PullResource(session),
            "downloads": pull.DownloadsResource(session),
            "pull/variants": pull_variants.PullVariantsResource(session),
            "health": health.HealthResource(session),
            "stats": health.StatsResource(session),
            "install": install.InstallResource(session),
            "uninstall": install.UninstallResource(session),
            "system-info": system_info.SystemInfoResource(session),
        }
        preview = {"load": load.PreviewLoadResource(session), "unload": load.PreviewUnloadResource(session)}
        unversioned: Routes = {"/logs/stream": LogStreamResource(session), "/internal/pin": pin.PinResource(session)}
        return {**unversioned, **versioned(routes, preview)}

    def documentation(self) -> Documentation:
        """Return what the routes take and answer."""
        from gateway.api.lemonade.documentation import DOCUMENTATION  # noqa: PLC0415 - only when the document is asked for

        return DOCUMENTATION
