"""The operator's routes, below ``/internal``."""

from __future__ import annotations

from gateway.api.common.dialect import Dialect, Routes
from gateway.api.common.operations import Documentation
from gateway.api.operator.configuration import ConfigurationResource
from gateway.api.operator.keys import KeyResource, KeysResource
from gateway.api.operator.reload import ReloadResource
from gateway.api.operator.settings import SettingsResource
from gateway.api.operator.upgrade import UpgradeResource
from gateway.bus.session import SupervisorSession


class OperatorDialect(Dialect):
    """The operator's routes; their errors have the default form."""

    def routes(self, session: SupervisorSession) -> Routes:
        """Return the routes."""
        return {
            "/internal/configuration": ConfigurationResource(session),
            "/internal/keys": KeysResource(session),
            "/internal/keys/{name}": KeyResource(session),
            "/internal/reload": ReloadResource(session),
            "/internal/settings": SettingsResource(session),
            "/internal/upgrade": UpgradeResource(session),
        }

    def documentation(self) -> Documentation:
        """Return what the routes take and answer."""
        from gateway.api.operator.documentation import DOCUMENTATION  # noqa: PLC0415 - only when the document is asked for

        return DOCUMENTATION
