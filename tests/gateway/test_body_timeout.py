"""Waiting for a body that does not come."""

from __future__ import annotations

from types import SimpleNamespace

import falcon
import falcon.testing
import gevent
import pytest

from gateway.http import bodies
from protocol.failures import LemonbusError


class _Never:
    reader = SimpleNamespace()

    def read(self, _size: int) -> bytes:
        gevent.sleep(30.0)
        return b""


@pytest.mark.parametrize("headers", [{"Content-Length": "10"}, {"Transfer-Encoding": "chunked"}])
def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, headers: dict[str, str]) -> None:
    monkeypatch.setattr(bodies, "READ_TIMEOUT_S", 0.01)
    request = falcon.Request({**falcon.testing.create_environ(headers=headers), "wsgi.input": _Never()})
    with pytest.raises(LemonbusError) as caught:
        bodies.read(request, 10)
    assert caught.value.failure.http_status == 408
