"""Many clients, in a shell whose limit of open files is small."""

from __future__ import annotations

import contextlib
import resource
import socket

from tests.conftest import SMALL_LIMIT
from tests.support.clients.http_client import chat_body
from tests.support.server import LemonbusServer
from workers.engine.process import ENGINE_DESCRIPTORS

LOOP = "extra.tiny-loop"
CLIENTS = 3 * SMALL_LIMIT
"""More than the limit in one of two gateway processes, however the connections are shared out."""


def test_more_clients_than_the_inherited_limit_are_served(keyed_server: LemonbusServer) -> None:
    server = keyed_server
    with contextlib.ExitStack() as stack:
        for _ in range(CLIENTS):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 10.0))
        body = chat_body(LOOP, max_tokens=2)
        assert server.client.post("/v1/chat/completions", body, **server.admin_headers).status == 200
    engine_limit = resource.prlimit(server.engine_pid(LOOP), resource.RLIMIT_NOFILE)[0]
    assert engine_limit == ENGINE_DESCRIPTORS
