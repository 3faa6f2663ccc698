"""A route that is known but not supported: 501 with the reason and an alternative."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import falcon

from gateway.access.scopes import Scope
from protocol.failures import Code, Failure


class UnsupportedResource:
    """One such route."""

    scopes: ClassVar[Mapping[str, Scope]] = {"POST": Scope.INFERENCE}

    def __init__(self, what: str, cure: str) -> None:
        """Refuse ``what`` (a subject with its verb). ``cure`` names an alternative, or what support would need."""
        self._failure = Failure(Code.UNSUPPORTED, f"{what} not served here yet: {cure}")

    def on_post(self, _req: falcon.Request, _resp: falcon.Response, **_parameters: str) -> None:
        """Answer 501."""
        raise self._failure.raised()
