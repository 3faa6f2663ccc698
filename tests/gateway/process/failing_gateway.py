"""A gateway process with routes whose code fails: each stands for a programming error of ours at one place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import falcon
import gevent

from gateway.server import gunicorn_master
from gateway.server.gunicorn_master import GunicornApplication


def _fail() -> None:
    raise RuntimeError("ours")


class _FailsInResource:
    def on_get(self, _req: falcon.Request, _resp: falcon.Response) -> None:
        _fail()


class _FailsInBody:
    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        resp.stream = self._pieces()

    def _pieces(self) -> Iterator[bytes]:
        yield b"one piece"
        _fail()


class _FailsInEventLoop:
    def on_get(self, _req: falcon.Request, _resp: falcon.Response) -> None:
        gevent.get_hub().loop.run_callback(_fail)


class FailingApplication(GunicornApplication):
    """The application and the routes that fail."""

    def load(self) -> Any:
        app = super().load()
        app.add_route("/fails/resource", _FailsInResource())
        app.add_route("/fails/body", _FailsInBody())
        app.add_route("/fails/event-loop", _FailsInEventLoop())
        return app


if __name__ == "__main__":
    gunicorn_master.GunicornApplication = FailingApplication  # type: ignore[misc]
    gunicorn_master.main()
