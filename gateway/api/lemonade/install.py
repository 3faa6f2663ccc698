"""``install`` and ``uninstall``: the backends, which are the programs that models run on."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import falcon
import msgspec

from gateway.api.common.progress_events import ProgressWriter, complete_event, stream_progress
from gateway.api.common.request_fields import JsonObject, flag_of, optional_body, text_of
from gateway.bus.session import SupervisorSession
from protocol.failures import invalid
from protocol.messages.backend_installs import BackendDone, InstallBackend, UninstallBackend
from protocol.wire import envelope


class InstallEventWriter(ProgressWriter):
    """The events of one installation."""

    def complete(self, report: bytes) -> bytes:
        """Return a ``complete`` event like a download's, with what was installed."""
        done = envelope.unpack_payload(report, BackendDone)
        return complete_event(done.files, status="success", recipe=done.recipe, backend=done.backend)


class InstallResource:
    """``POST install``: installs or updates a backend."""

    changes: ClassVar[frozenset[str]] = frozenset({"POST"})

    def __init__(self, session: SupervisorSession) -> None:
        """Call the supervisor through ``session``."""
        self._session = session

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer when the backend is installed; with ``stream`` stream its progress until then.

        A client that hangs up does not stop the installation.
        """
        body = optional_body(req, self._session.settings)
        recipe, backend = _recipe_and_backend(body)
        force, stream = flag_of(body, "force"), flag_of(body, "stream")
        build = partial(InstallBackend, recipe=recipe, backend=backend, force=force, progress=stream)
        if stream:
            stream_progress(self._session, req, resp, build, InstallEventWriter())
        else:
            _write_answer(resp, self._session.call(req.env, build, BackendDone))


class UninstallResource:
    """``POST uninstall``: removes a backend."""

    changes: ClassVar[frozenset[str]] = frozenset({"POST"})

    def __init__(self, session: SupervisorSession) -> None:
        """Call the supervisor through ``session``."""
        self._session = session

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer when the backend is removed; models that use it are unloaded first."""
        recipe, backend = _recipe_and_backend(optional_body(req, self._session.settings))
        build = partial(UninstallBackend, recipe=recipe, backend=backend)
        _write_answer(resp, self._session.call(req.env, build, BackendDone))


def _recipe_and_backend(body: JsonObject) -> tuple[str, str]:
    """Return ``recipe`` and ``backend``; raises ``invalid_request`` naming the one that is missing."""
    recipe, backend = text_of(body, "recipe"), text_of(body, "backend")
    for key, given in (("recipe", recipe), ("backend", backend)):
        if not given:
            raise invalid(f"`{key}` is required", key)
    return recipe, backend


def _write_answer(resp: falcon.Response, done: BackendDone) -> None:
    resp.content_type = falcon.MEDIA_JSON
    answer = {"status": "success", "recipe": done.recipe, "backend": done.backend}
    resp.data = msgspec.json.encode({**answer, "version": done.version} if done.version else answer)
