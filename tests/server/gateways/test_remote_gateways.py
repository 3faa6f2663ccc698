"""Two gateways of other machines and one server: keys, limits, metrics, logs and request ids are one; each end is as on the head."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from typing import Any

import pytest
import simple_websocket
from prometheus_client.parser import text_string_to_metric_families

from protocol.wire.bus_address import MemberKeys, decode_token, encode_token
from protocol.wire.curve import new_cluster_keys
from tests.conftest import StartServer
from tests.faults.supervisors.recoveries import kill_supervisor
from tests.support import processes
from tests.support.clock import with_shifted_clock
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.ports import free_port_pair
from tests.support.remote_gateway import END, ROOT, RemoteGateway, token_of
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

CHAT, LOOP = "extra.tiny-chat", "extra.tiny-loop"
HOUR_S = 3600
ADMIN = "lb-admin-of-this-test"


@pytest.fixture(scope="module")
def server(start_module_server: StartServer) -> LemonbusServer:
    address = f"127.0.0.1:{free_port_pair()}"
    made = start_module_server(
        "tiny-chat", "tiny-loop", cluster_address=address, gateway_workers=1, admin_api_key=ADMIN
    )
    for model in (CHAT, LOOP):
        assert made.client.post("/v1/load", {"model_name": model}, 60.0, **made.admin_headers).status == 200
    return made


@pytest.fixture(scope="module")
def gateways(server: LemonbusServer) -> Iterator[list[RemoteGateway]]:
    with ExitStack() as stack:
        yield [stack.enter_context(RemoteGateway.of(server, f"edge{number}")) for number in (1, 2)]


def add_key(server: LemonbusServer, name: str, **rights: Any) -> dict[str, str]:
    """Return the headers of a new API key, which is made on the head."""
    answer = server.client.post("/internal/keys", {"name": name, **rights}, **server.admin_headers)
    assert answer.status == 200, answer
    return {"Authorization": f"Bearer {answer.json()['key']}"}


def known(gateway: RemoteGateway, headers: dict[str, str]) -> bool:
    return gateway.client.get("/v1/models", **headers).status == 200


def unknown(gateway: RemoteGateway, headers: dict[str, str]) -> bool:
    return gateway.client.get("/v1/models", **headers).status == 401


def test_models_answer_through_every_gateway(server: LemonbusServer, gateways: list[RemoteGateway]) -> None:
    for gateway in gateways:
        stream = gateway.client.start_chat(LOOP, headers=server.admin_headers, stream=True, max_tokens=20).finish()
        assert (stream.status, stream.text, stream.done) == (200, CHAT_TEXT, True)
        assert gateway.client.get("/v1/health", **server.admin_headers).json()["lemonbus"]["models"]
        assert gateway.client.chat(CHAT).status == 401


def test_a_key_is_valid_everywhere_until_it_is_revoked(server: LemonbusServer, gateways: list[RemoteGateway]) -> None:
    headers = add_key(server, "everywhere")
    for gateway in gateways:
        wait_for(partial(known, gateway, headers), "the key is known there")
    assert (
        server.client.start("DELETE", "/internal/keys/everywhere", headers=server.admin_headers).finish().status == 200
    )
    for gateway in gateways:
        wait_for(partial(unknown, gateway, headers), "the key is revoked there")


def test_a_stream_with_a_revoked_key_ends(server: LemonbusServer, gateways: list[RemoteGateway]) -> None:
    headers = add_key(server, "streaming")
    wait_for(lambda: known(gateways[0], headers), "the key is known there")
    stream = gateways[0].client.start_chat(LOOP, headers=headers, stream=True, max_tokens=60_000)
    stream.until(lambda it: len(it.events) > 2)
    assert (
        server.client.start("DELETE", "/internal/keys/streaming", headers=server.admin_headers).finish().status == 200
    )
    stream.finish()
    assert not stream.done
    assert "revoked" in str(stream.error)
    wait_for(lambda: server.health()["lemonbus"]["granted"] == 0, "its engine is free")


def test_keys_are_changed_on_the_head(server: LemonbusServer, gateways: list[RemoteGateway]) -> None:
    answer = gateways[0].client.post("/internal/keys", {"name": "edge"}, **server.admin_headers)
    assert answer.status == 409
    assert "on the head" in answer.json()["error"]["message"]
    assert "edge" not in {
        key["name"] for key in server.client.get("/internal/keys", **server.admin_headers).json()["keys"]
    }


def test_the_limits_of_a_key_are_those_of_all_gateways(server: LemonbusServer, gateways: list[RemoteGateway]) -> None:
    headers = add_key(server, "limited", requests_per_minute=2)
    for gateway in gateways:
        wait_for(partial(known, gateway, headers), "the key is known there")
    clients = [*(gateway.client for gateway in gateways), server.client]
    answers = [client.chat(CHAT, headers=headers, max_tokens=2).status for client in clients]
    assert answers == [200, 200, 429]


def test_logs_request_ids_and_metrics_are_those_of_one_server(
    server: LemonbusServer, gateways: list[RemoteGateway]
) -> None:
    for number, gateway in enumerate(gateways):
        asked = {**server.admin_headers, "X-Request-ID": f"edge-request-{number}"}
        answer = gateway.client.chat(CHAT, headers=asked, max_tokens=2)
        assert answer.headers["x-request-id"] == f"edge-request-{number}"
    reader = simple_websocket.Client.connect(f"ws://127.0.0.1:{server.port}/logs/stream", headers=server.admin_headers)
    try:
        reader.send('{"type": "logs.subscribe", "after_seq": null}')
        seen: list[str] = []

        def logged(label: str) -> bool:
            seen.append(str(reader.receive(timeout=0.1) or ""))
            return any(label in text for text in seen)

        for number in range(2):
            wait_for(partial(logged, f"edge-request-{number}"), "the log of the head has the request")
        assert any("edge2" in text for text in seen)
    finally:
        reader.close()
        reader.thread.join(20)
    requests = "lemonbus_http_requests_total"

    def counted() -> float:
        answer = gateways[0].client.get("/metrics", **server.admin_headers)
        families = text_string_to_metric_families(answer.body.decode())
        return sum(
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == requests and sample.labels.get("endpoint") == "chat/completions"
        )

    before = counted()
    assert gateways[1].client.chat(CHAT, headers=server.admin_headers, max_tokens=2).status == 200
    wait_for(lambda: counted() > before, "the request through the other gateway is counted")


def test_a_body_that_the_head_would_put_into_a_file(server: LemonbusServer, gateways: list[RemoteGateway]) -> None:
    long = "x" * (server.settings.spool_over + 1)
    answer = gateways[0].client.chat(CHAT, headers=server.admin_headers, max_tokens=2, user=long)
    assert answer.status == 200, answer


def test_streams_and_waiting_requests_do_not_notice_another_supervisor(
    server: LemonbusServer, gateways: list[RemoteGateway]
) -> None:
    clients = [gateway.client for gateway in gateways]
    with processes.stopped(server.engine_pid(LOOP)):
        running = [
            client.start_chat(LOOP, headers=server.admin_headers, stream=True, max_tokens=40)
            for client in clients
            for _ in range(2)
        ]
        wait_for(lambda: server.state()["granted"] == 4, "they run")
        waiting = [client.start_chat(LOOP, headers=server.admin_headers, max_tokens=20) for client in clients]
        wait_for(lambda: server.state()["queued"] == 2, "the others wait")
        line = kill_supervisor(server)
    for exchange in (*running, *waiting):
        exchange.finish(60)
        assert (exchange.status, exchange.complete) == (200, True), exchange
    assert {stream.text for stream in running} == {2 * CHAT_TEXT}
    assert {whole.text for whole in waiting} == {CHAT_TEXT}
    assert (line["attempts"], line["killed"]) == (4, [])
    wait_for(lambda: server.health()["lemonbus"]["granted"] == 0, "no grant is left")


def test_a_gateway_that_is_killed_is_replaced_and_its_streams_cost_nothing_more(
    server: LemonbusServer, gateways: list[RemoteGateway]
) -> None:
    gateway = gateways[1]
    stream = gateway.client.start_chat(LOOP, headers=server.admin_headers, stream=True, max_tokens=60_000)
    stream.until(lambda it: len(it.events) > 2)
    (pid,) = gateway.gateway_pids()
    processes.kill(pid)
    wait_for(lambda: server.busy_slots(LOOP) == 0, "the engine does not work for it any more")
    assert wait_for(lambda: gateway.client.chat(CHAT, headers=server.admin_headers, max_tokens=2), "an answer").status
    assert gateway.gateway_pids() != [pid]


@pytest.mark.parametrize("other", ["token", "server"])
def test_a_token_of_another_server_is_refused(server: LemonbusServer, other: str) -> None:
    strange, own = new_cluster_keys().of_member(), decode_token(token_of(server))
    keys = (
        MemberKeys(own.supervisor, strange.member) if other == "token" else MemberKeys(strange.supervisor, own.member)
    )
    with RemoteGateway(server.settings.cluster_address, encode_token(keys), "stranger", wait=False) as gateway:
        assert gateway.process.wait(END) == 1
        assert "does not admit this token" in str(gateway.output())


def test_no_key_is_in_a_command_line_or_an_environment(server: LemonbusServer) -> None:
    with RemoteGateway.of(server, "secretive") as gateway:
        secrets = [token_of(server), decode_token(token_of(server)).member.secret]
        found = gateway.processes()
        assert len(found) >= 3  # the host, gunicorn's master, and its worker
        for process in found:
            shown = [*process.words, *processes.environment(process.pid).values()]
            assert not [each for each in shown for secret in secrets if secret in each]


def test_the_keys_of_clients_are_in_no_file_of_another_machine(gateways: list[RemoteGateway]) -> None:
    for gateway in gateways:
        files = [path for path in gateway.home.rglob("*") if path.is_file()]
        assert "settings.json" in {path.name for path in files}
        assert not [path for path in files if ADMIN.encode() in path.read_bytes()]


def test_a_text_that_is_not_a_token_is_refused_at_once(server: LemonbusServer) -> None:
    with RemoteGateway(server.settings.cluster_address, "lb-not-a-token", wait=False) as gateway:
        assert gateway.process.wait(END) == 2
        assert "lemonbus nodes token" in str(gateway.output())


def test_another_release_is_refused_with_the_reason(server: LemonbusServer) -> None:
    code = (
        "import protocol, runpy; protocol.VERSION = 11; protocol.UNDERSTOOD = frozenset({11});"
        "runpy.run_module('supervisor.gateway_host', run_name='__main__')"
    )
    with RemoteGateway(server.settings.cluster_address, token_of(server), "old", code=code, wait=False) as gateway:
        assert gateway.process.wait(END) == 1
        assert "install that release" in str(gateway.output())


def test_a_gateway_ends_in_order(server: LemonbusServer) -> None:
    with RemoteGateway.of(server, "leaving") as gateway:
        stream = gateway.client.start_chat(LOOP, headers=server.admin_headers, stream=True, max_tokens=400)
        stream.until(lambda it: len(it.events) > 2)
        gateway.process.send_signal(signal.SIGTERM)
        stream.finish(60)
        assert stream.done
        assert gateway.process.wait(END) == 0
    lines = [line for line in server.lines if line["event"] == "gateway worker gone" and line["level"] == "warning"]
    assert not [line for line in lines if line.get("node") == "leaving"]


def test_the_token_is_printed_for_who_may_read_the_state_directory(server: LemonbusServer) -> None:
    words = [
        sys.executable,
        str(ROOT / "deploy" / "launch"),
        "nodes",
        "token",
        "--state-dir",
        server.settings.state_dir,
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, token_of(server))


def test_a_gateway_whose_clock_is_wrong_uses_that_of_the_head(server: LemonbusServer) -> None:
    words, address = with_shifted_clock(HOUR_S), server.settings.cluster_address
    headers = add_key(server, "for-minutes", expires=time.time() + HOUR_S / 2)
    with RemoteGateway(address, token_of(server), "fast", prefix=words) as gateway:
        wait_for(partial(known, gateway, headers), "the key is known there, and has not expired")
        body = {"model": CHAT, "prompt": "x", "stream": False, "options": {"num_predict": 1}}
        made = gateway.client.post("/api/generate", body, **headers).json()["created_at"]
        assert abs(datetime.fromisoformat(made).timestamp() - time.time()) < HOUR_S / 2
        answer = gateway.client.post("/v1/responses", {"model": CHAT, "input": "x", "max_output_tokens": 16}, **headers)
        assert abs(answer.json()["created_at"] - time.time()) < HOUR_S / 2
