"""A route that is known but not supported: 501 with the reason and an alternative."""

from __future__ import annotations

from gateway.api.common.operations import UNSUPPORTED
from gateway.api.common.routes import HttpCaller, Nothing, Route, route
from protocol.config.api_keys import Scope
from protocol.failures import Code, Failure


def unsupported(method: str, path: str, what: str, cure: str, also: tuple[str, ...] = ()) -> Route[Nothing, None]:
    """Declare such a route.

    It refuses ``what`` (a subject with its verb). ``cure`` names an alternative, or what support would need. ``also``: its other
    paths.
    """
    failure = Failure(Code.UNSUPPORTED, f"{what} not served here: {cure}")

    @route(method, path, scope=Scope.INFERENCE, failures=UNSUPPORTED, also=also)
    def refuse(_caller: HttpCaller, _request: Nothing) -> None:
        """Is not served: 501 says what to use instead."""
        raise failure.raised()

    return refuse
