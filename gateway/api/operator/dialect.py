"""The operator's routes, below ``/internal``."""

from __future__ import annotations

from gateway.api.common.dialect import Dialect, Routes
from gateway.api.common.operations import Documentation
from gateway.api.common.route_resource import resources
from gateway.api.operator import configuration, disk_usage, drain, keys, nodes, overview, reload, upgrade, usage
from gateway.bus.session import SupervisorSession


class OperatorDialect(Dialect):
    """The operator's routes; their errors have the default form."""

    def routes(self, session: SupervisorSession) -> Routes:
        """Return the routes."""
        return resources(session, configuration, disk_usage, drain, keys, nodes, overview, reload, upgrade, usage)

    def documentation(self) -> Documentation:
        """Return what the routes are about."""
        return Documentation("lemonbus", "Routes for the operator of this server.")
