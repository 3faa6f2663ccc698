"""Many clients, in a shell whose limit of open files is small."""

from __future__ import annotations

import contextlib
import resource
import socket

import pytest

from tests.conftest import StartServer
from tests.support.server import LemonbusServer
from workers.engine.process import ENGINE_DESCRIPTORS

LOOP = "extra.tiny-loop"
SMALL_LIMIT = 200
CLIENTS = 400


@pytest.fixture
def server(start_server: StartServer) -> LemonbusServer:
    """A server that inherits a soft limit of few descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (SMALL_LIMIT, hard))
    try:
        server = start_server("tiny-loop", gateway_workers=1, load=[LOOP])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return server


def test_more_clients_than_the_inherited_limit_are_served(server: LemonbusServer) -> None:
    server.wait_loaded(LOOP)
    with contextlib.ExitStack() as stack:
        for _ in range(CLIENTS):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 10.0))
        assert server.client.chat(LOOP, max_tokens=2).status == 200
    engine_limit = resource.prlimit(server.engine_pid(LOOP), resource.RLIMIT_NOFILE)[0]
    assert engine_limit == ENGINE_DESCRIPTORS
