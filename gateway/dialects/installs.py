"""``install`` and ``uninstall``: the programs that models run on."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import falcon
import msgspec

from gateway.dialects.naming import Body, flag_of, optional_body, text_of
from gateway.dialects.progress import ProgressEvents, complete_event, tell
from gateway.house import House
from protocol import wire
from protocol.backends import BackendDone, InstallBackend, UninstallBackend
from protocol.failures import invalid


class InstallEvents(ProgressEvents):
    """The stream of one installation's events."""

    def complete(self, report: bytes) -> bytes:
        """Return a ``complete`` event like a download's, with what was installed."""
        done = wire.unpack(report, BackendDone)
        return complete_event(done.files, status="success", recipe=done.recipe, backend=done.backend)


class Install:
    """Install or update a backend."""

    changes: ClassVar[frozenset[str]] = frozenset({"POST"})

    def __init__(self, house: House) -> None:
        """Ask ``house``."""
        self._house = house

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer when it is there; with ``stream`` tell how far it is until then.

        A client that hangs up does not stop the installation.
        """
        body = optional_body(req, self._house.settings)
        recipe, backend = _pair(body)
        force, stream = flag_of(body, "force"), flag_of(body, "stream")
        build = partial(InstallBackend, recipe=recipe, backend=backend, force=force, progress=stream)
        if stream:
            tell(self._house, req, resp, build, InstallEvents)
        else:
            _answer(resp, self._house.call(req.env, build, BackendDone))


class Uninstall:
    """Remove a backend."""

    changes: ClassVar[frozenset[str]] = frozenset({"POST"})

    def __init__(self, house: House) -> None:
        """Ask ``house``."""
        self._house = house

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer when it is gone; models that use it are unloaded first."""
        recipe, backend = _pair(optional_body(req, self._house.settings))
        build = partial(UninstallBackend, recipe=recipe, backend=backend)
        _answer(resp, self._house.call(req.env, build, BackendDone))


def _pair(body: Body) -> tuple[str, str]:
    """Return ``recipe`` and ``backend``; raises ``invalid_request`` naming the one that is missing."""
    recipe, backend = text_of(body, "recipe"), text_of(body, "backend")
    for key, given in (("recipe", recipe), ("backend", backend)):
        if not given:
            raise invalid(f"`{key}` is required", key)
    return recipe, backend


def _answer(resp: falcon.Response, done: BackendDone) -> None:
    resp.content_type = falcon.MEDIA_JSON
    shown = {"status": "success", "recipe": done.recipe, "backend": done.backend}
    resp.data = msgspec.json.encode({**shown, "version": done.version} if done.version else shown)
