"""``/live`` and ``/health``: for those who watch the process, without version and without the supervisor."""

from __future__ import annotations

from typing import Final

import falcon

from gateway.house import House
from gateway.state import State

_OK: Final = b'{"status":"ok"}'


class Live:
    """The process answers."""

    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """Answer."""
        resp.content_type = falcon.MEDIA_JSON
        resp.data = _OK


class Health:
    """Whether this gateway takes requests."""

    def __init__(self, house: House) -> None:
        """Ask ``house``."""
        self._house = house

    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """200 if it does; 503 while it starts or stops."""
        if self._house.state is not State.OPEN:
            self._house.admit()
        resp.content_type = falcon.MEDIA_JSON
        resp.data = _OK
