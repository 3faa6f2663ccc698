"""A gateway on another machine that cannot reach its supervisor: streams go on, requests wait, and nothing is counted twice."""

from __future__ import annotations

import contextlib
from pathlib import Path

from tests.conftest import StartServer
from tests.support import processes
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.ports import free_port_pair
from tests.support.remote_gateway import RemoteGateway, token_of
from tests.support.server import LemonbusServer
from tests.support.tcp_link import TcpLink
from tests.support.waiting import wait_for

LOOP = "extra.tiny-loop"


def gateways_gone(server: LemonbusServer) -> int:
    return sum(line["event"] == "gateway worker gone" for line in server.lines)


def hosts_given_up(server: LemonbusServer) -> int:
    return sum(line["event"] == "peer killed" and line["role"] == "gateway_host" for line in server.lines)


def connections_ended(gateway: RemoteGateway) -> int:
    """How often its gateways have noticed that they cannot reach the supervisor."""
    return sum("requests wait for the next one" in str(line) for line in gateway.output())


def serves(gateway: RemoteGateway, model: str) -> bool:
    """Return whether it answers a request; a gateway that is about to be replaced may break off the connection."""
    with contextlib.suppress(OSError):
        return gateway.client.chat(model, max_tokens=2).status == 200
    return False


def test_streams_go_on_and_requests_wait_while_the_link_is_broken(start_server: StartServer) -> None:
    server = start_server("tiny-loop", cluster_address=f"127.0.0.1:{free_port_pair()}")
    assert server.client.post("/v1/load", {"model_name": LOOP}, 60.0).status == 200
    with (
        TcpLink(server.settings.cluster_address) as link,
        RemoteGateway(link.address, token_of(server)) as gateway,
    ):
        with processes.stopped(server.engine_pid(LOOP)):
            running = [gateway.client.start_chat(LOOP, stream=True, max_tokens=40) for _ in range(4)]
            wait_for(lambda: server.state()["granted"] == 4, "they run")
            waiting = [gateway.client.start_chat(LOOP, max_tokens=20) for _ in range(2)]
            wait_for(lambda: server.state()["queued"] == 2, "the others wait")
            link.cut()
            wait_for(lambda: connections_ended(gateway), "the gateway has noticed it")
            late = gateway.client.start_chat(LOOP, max_tokens=20)
        for stream in running:
            stream.finish(60)
            assert (stream.status, stream.text, stream.done) == (200, 2 * CHAT_TEXT, True), "tokens need no supervisor"
        assert not late.over
        link.heal()
        for exchange in (*waiting, late):
            exchange.finish(60)
            assert (exchange.status, exchange.text) == (200, CHAT_TEXT), exchange
        wait_for(lambda: server.state()["granted"] == 0, "no grant is left")
        assert not gateways_gone(server), "it was not lost"


def test_a_gateway_that_was_lost_begins_anew(start_server: StartServer) -> None:
    server = start_server("tiny-loop", cluster_address=f"127.0.0.1:{free_port_pair()}", peer_silence=4.0)
    assert server.client.post("/v1/load", {"model_name": LOOP}, 60.0).status == 200
    with (
        TcpLink(server.settings.cluster_address) as link,
        RemoteGateway(link.address, token_of(server)) as gateway,
    ):
        before = gateway.gateway_pids()
        stream = gateway.client.start_chat(LOOP, stream=True, max_tokens=60_000)
        stream.until(lambda it: len(it.events) > 2)
        link.cut()
        wait_for(lambda: connections_ended(gateway), "the gateway has noticed it")
        waiting = gateway.client.start_chat(LOOP, max_tokens=2)
        wait_for(lambda: gateways_gone(server), "the supervisor has given it up", 30.0)
        wait_for(lambda: server.busy_slots(LOOP) == 0, "the engine is free for others")
        link.heal()
        assert stream.finish().error["code"] == "events_lost"
        assert waiting.finish(60).status == 200
        assert gateway.gateway_pids() == before


def test_a_gateway_and_a_host_that_were_given_up_on_whole_connections_begin_anew(start_server: StartServer) -> None:
    server = start_server("tiny-loop", cluster_address=f"127.0.0.1:{free_port_pair()}", peer_silence=4.0)
    assert server.client.post("/v1/load", {"model_name": LOOP}, 60.0).status == 200
    with RemoteGateway.of(server) as gateway:
        (pid,) = gateway.gateway_pids()
        stream = gateway.client.start_chat(LOOP, stream=True, max_tokens=60_000)
        stream.until(lambda it: len(it.events) > 2)
        with processes.stopped(pid), processes.stopped(gateway.process.pid):
            waiting = [gateway.client.start_chat(LOOP, max_tokens=2) for _ in range(6)]
            wait_for(lambda: gateways_gone(server), "the supervisor has given it up", 30.0)
            wait_for(lambda: hosts_given_up(server), "and its host", 30.0)
            wait_for(lambda: server.busy_slots(LOOP) == 0, "the engine is free for others")
        assert stream.finish().error["code"] == "events_lost"
        assert [each.finish(60).status for each in waiting] == 6 * [200]
        assert gateway.gateway_pids() == [pid]
        wait_for(lambda: server.state()["granted"] == 0, "no grant is left")
        assert server.client.post("/internal/keys", {"name": "first", "scopes": ["admin"]}).status == 200
        wait_for(lambda: gateway.client.get("/v1/models").status == 401, "the host has got the key")


def test_gateways_join_the_next_start_of_the_head(start_server: StartServer, tmp_path: Path) -> None:
    settings = {"cluster_address": f"127.0.0.1:{free_port_pair()}", "state_dir": str(tmp_path / "state")}
    first = start_server("tiny-chat", **settings)
    with RemoteGateway.of(first) as gateway:
        assert gateway.client.chat("extra.tiny-chat", max_tokens=2).status == 200
        first.stop()
        wait_for(lambda: "the gateways wait for its next start" in str(gateway.output()), "it was told")
        second = start_server("tiny-chat", **settings)
        wait_for(lambda: serves(gateway, "extra.tiny-chat"), "it has joined, and serves", 60.0)
        assert gateway.client.get("/v1/health").json()["lemonbus"]["boot"] == second.state()["boot"]
