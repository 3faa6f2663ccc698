"""Waiting for a client: for its next request, and for a body that does not come."""

from __future__ import annotations

import falcon
import falcon.testing
import gevent
import pytest

from gateway import bodies
from gateway.idle import Idle
from protocol.failures import LemonbusError


def test_an_idle_connection_is_ended_early() -> None:
    waiting: set[Idle] = set()
    ended = []

    def wait() -> None:
        with Idle(30.0, waiting):
            gevent.sleep(30.0)
        ended.append(True)

    greenlet = gevent.spawn(wait)
    gevent.sleep(0)
    for idle in list(waiting):
        idle.end()
    greenlet.join(5.0)
    assert ended == [True]
    assert not waiting


def test_a_request_that_comes_at_the_same_time_is_not_disturbed() -> None:
    waiting: set[Idle] = set()
    answered = []

    def serve() -> None:
        with Idle(30.0, waiting) as idle:
            idle.end()
        gevent.sleep(0.01)
        answered.append(True)

    gevent.spawn(serve).join(5.0)
    assert answered == [True]


class _Never:
    def read(self, _size: int) -> bytes:
        gevent.sleep(30.0)
        return b""


@pytest.mark.parametrize("headers", [{"Content-Length": "10"}, {"Transfer-Encoding": "chunked"}])
def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, headers: dict[str, str]) -> None:
    monkeypatch.setattr(bodies, "PATIENCE", 0.01)
    request = falcon.Request({**falcon.testing.create_environ(headers=headers), "wsgi.input": _Never()})
    with pytest.raises(LemonbusError) as caught:
        bodies.read(request, 10)
    assert caught.value.failure.http_status == 408
