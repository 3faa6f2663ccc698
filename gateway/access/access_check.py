"""Falcon middleware: finds the caller's key and checks its scope.

Without keys, it checks the page that sent the request.
"""

from __future__ import annotations

from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

import falcon

from gateway.access.foreign_origins import ForeignOriginCheck
from gateway.access.key_ring import KeyRing
from gateway.access.presented_key import presented_key
from gateway.access.scopes import Scope, handled_as, needed_scope, suffices_for_monitor
from gateway.http.request_context import RequestContext, is_open, request_context
from protocol.batches import credential
from protocol.config.api_keys import ApiKey
from protocol.config.settings import Settings
from protocol.failures import Code, Failure

_REMEMBERED: Final = 256
"""Methods of resources whose scopes are remembered."""
_ACTIONS: Final = {
    Scope.INFERENCE: "use models",
    Scope.ADMIN: "change the server",
    Scope.LOGS: "read the logs",
    Scope.METRICS: "read the metrics",
}


class AccessCheck:
    """Answers 401 to a request without a valid key, and 403 to one whose key lacks the scope of the route."""

    def __init__(self, settings: Settings) -> None:
        """Read the keys of the settings and the file."""
        self.keys = KeyRing(settings)
        self._runtime = Path(settings.runtime_dir)
        self._origins = ForeignOriginCheck(settings.host, settings.allowed_hosts, settings.cors_origins)

    def process_request(self, req: falcon.Request, _resp: falcon.Response) -> None:
        """Find the key, and whether the caller is an administrator."""
        context = request_context(req.env)
        context.keys_needed = self.keys.required()
        if credential.ENVIRON_KEY in req.env:
            self._admit_batch(req.env[credential.ENVIRON_KEY], context)
            return
        if not context.keys_needed:
            context.check_admin = partial(self._origins.is_admin, req)
            context.check_change = partial(self._origins.check_change, req)
            return
        if is_open(req.path, req.env):
            return
        context.api_key = key = self.keys.find(presented_key(req))
        context.check_change = partial(_check_scope, key, Scope.ADMIN)
        if key.allows(Scope.ADMIN):
            context.check_admin = _always

    def _admit_batch(self, header: str, context: RequestContext) -> None:
        """Let a line of a batch do what its owner's key may do now. Raises ``unauthorized``."""
        owner = credential.owner_of(header, self._runtime)
        if owner is None:
            raise Failure(Code.UNAUTHORIZED, f"{credential.HEADER} is only for this server's own requests").raised()
        context.batch = True
        if context.keys_needed:
            context.api_key = self.keys.owner(owner)

    def process_resource(
        self, req: falcon.Request, _resp: falcon.Response, resource: object, _params: dict[str, Any]
    ) -> None:
        """Refuse what the key or the page may not do."""
        context = request_context(req.env)
        key = context.api_key
        if key is None:
            self._origins.check(req, resource)
            uses_models = req.method == "POST" or getattr(resource, "uses_models", False)
            # Other requests that began without a key may finish.
            if _scopes_of(resource, req.method)[0] is Scope.LOGS or (uses_models and req.method == "GET"):
                context.withdrawal = self.keys.demanded
            if uses_models:
                context.download_refusal = self._origins.refusal(req, "download a model")
            return
        # A method that a route does not have is 405, whatever the key.
        if hasattr(resource, f"on_{handled_as(req.method).lower()}"):
            scopes = _scopes_of(resource, req.method)
            if not any(map(key.allows, scopes)):
                reads = scopes[0] is Scope.ADMIN and handled_as(req.method) == "GET"
                _check_scope(key, scopes[0], "make this request" if reads else _ACTIONS[scopes[0]])
            context.withdrawal = partial(self.keys.withdrawal, key, scopes)


# What a resource declares does not change.
@lru_cache(maxsize=_REMEMBERED)
def _scopes_of(resource: object, method: str) -> tuple[Scope, ...]:
    """Return the scopes any one of which suffices for a request, the usual one first."""
    needed = needed_scope(resource, method)
    return (needed, Scope.METRICS) if suffices_for_monitor(resource, method) else (needed,)


def _check_scope(key: ApiKey, scope: Scope, action: str) -> None:
    if not key.allows(scope):
        message = f"the API key {key.name} may not {action}: it does not have the scope {scope}"
        raise Failure(Code.FORBIDDEN, message).raised()


def _always() -> bool:
    return True
