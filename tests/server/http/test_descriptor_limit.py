"""Many clients, where the limit of open files is small."""

from __future__ import annotations

import contextlib
import resource
import socket
from pathlib import Path

import psutil
import pytest

from tests.conftest import SMALL_LIMIT, StartServer
from tests.support.clients.http_client import chat_body
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for
from workers.engine.process import ENGINE_DESCRIPTORS

LOOP = "extra.tiny-loop"
CLIENTS = 3 * SMALL_LIMIT
"""More than the limit in at least one of two gateway processes, however the connections are distributed."""


def test_more_clients_than_the_inherited_limit_are_served(keyed_server: LemonbusServer) -> None:
    server = keyed_server
    with contextlib.ExitStack() as stack:
        for _ in range(CLIENTS):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 10.0))
        body = chat_body(LOOP, max_tokens=2)
        assert server.client.post("/v1/chat/completions", body, **server.admin_headers).status == 200
    engine_limit = resource.prlimit(server.engine_pid(LOOP), resource.RLIMIT_NOFILE)[0]
    assert engine_limit == ENGINE_DESCRIPTORS


def leave_descriptors(server: LemonbusServer, count: int) -> None:
    """Let the gateway open this many more files, and no others."""
    [pid] = server.gateway_pids()
    used = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + count, resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]))


def test_idle_connections_give_way_to_a_request(start_server: StartServer) -> None:
    """The limit is lowered while the gateway runs, so that the system refuses connections whatever the gateway has reserved."""
    server = start_server("tiny-chat")
    leave_descriptors(server, 16)
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 10.0)) for _ in range(48)]
        assert server.client.get("/v1/models").status == 200
        idle[0].settimeout(10.0)
        assert idle[0].recv(1) == b"", "the oldest one was closed"


def test_the_connection_that_took_the_last_descriptor_is_served(start_server: StartServer) -> None:
    server = start_server("tiny-chat")
    gateway = psutil.Process(*server.gateway_pids())
    wait_for(lambda: not any(each.raddr for each in gateway.net_connections("tcp")), "no client is connected")
    leave_descriptors(server, 1)
    exchange = server.client.raw(b"")
    server.gateway_of(exchange)
    exchange.send(server.client.request_bytes("GET", "/v1/models"))
    assert exchange.finish().status == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 40,
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\n",
    ],
    ids=["takes nothing", "sends nothing"],
)
def test_clients_that_do_nothing_give_way_to_a_request(start_server: StartServer, sent: bytes) -> None:
    server = start_server("tiny-chat")
    leave_descriptors(server, 16)
    with contextlib.ExitStack() as stack:
        for _ in range(48):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 10.0))
            client.sendall(sent)
        assert server.client.get("/v1/models").status == 200
