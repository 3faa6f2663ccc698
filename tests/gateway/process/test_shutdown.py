"""How a real gateway process ends: draining, a dead keeper, a dead worker process, a dead master."""

from __future__ import annotations

import contextlib
import signal
import socket
from pathlib import Path

import msgspec
import psutil
import pytest

from protocol.messages import peers
from protocol.messages.calls import CallResult
from protocol.messages.health import GetHealth, HealthReport
from protocol.messages.metrics import FailedRequests
from protocol.messages.readiness import ServerReadiness
from tests.gateway.fake_supervisor import wait_for
from tests.gateway.fake_worker import CHUNK, DEADLINE
from tests.gateway.gateway_harness import GatewayHarness, running_gateway
from tests.gateway.process.chat_requests import CHAT, PATH, answer_whole, error_of, open_request
from tests.gateway.raw_http import parsed, read_to_end, read_until, request

LIST_PATH = "/v1/completions"
LIST = {"model": "tiny", "prompt": ["hi"] * 40}
"""Two pieces."""


def test_draining_refuses_the_new_and_lets_the_old_end(tmp_path: Path) -> None:
    with running_gateway(tmp_path / "r") as harness, harness.connect() as kept, open_request(harness) as connection:
        kept.sendall(request("GET", "/live", b"", Connection="keep-alive"))
        read_until(kept, b'{"status":"ok"}')
        received = harness.next_request()
        harness.do(lambda: harness.grant(received))
        harness.do(lambda: harness.publish(received, received.tokens(0, 1)))
        seen = read_until(connection, CHUNK % 0)
        harness.do(lambda: harness.send(received.gateway, peers.Draining(DEADLINE)))
        wait_for(lambda: harness.get("/health")[0] == 503)
        kept.sendall(request("POST", PATH, CHAT, Connection="keep-alive"))
        response = parsed(read_to_end(kept))
        assert (response[0], response[1]["connection"], error_of(response)["code"]) == (503, "close", "draining")
        assert harness.get("/live")[0] == 200
        harness.do(lambda: harness.publish(received, [*received.tokens(1, 2), received.done(2)]))
        assert parsed(seen + read_to_end(connection))[2].endswith(b"data: [DONE]\n\n")
        assert harness.gateway is not None
        harness.gateway.send_signal(signal.SIGTERM)
        assert harness.gateway.wait(DEADLINE) == 0


def test_questions_are_answered_while_the_server_drains(tmp_path: Path) -> None:
    with running_gateway(tmp_path / "r") as harness, open_request(harness) as connection:
        received = harness.next_request()
        harness.do(lambda: harness.grant(received))
        harness.do(lambda: harness.publish(received, received.tokens(0, 1)))
        seen = read_until(connection, CHUNK % 0)
        harness.do(lambda: harness.send(received.gateway, peers.Draining(DEADLINE)))
        wait_for(lambda: harness.get("/health")[0] == 503)
        with harness.connect() as asking:
            asking.sendall(request("GET", "/v1/health", b""))
            gateway, call = harness.called(GetHealth)
            report = HealthReport("draining", "1", "b1", harness.supervisor.pid, 5.0, [], {}, granted=1)
            harness.do(lambda: harness.send(gateway, CallResult(call.number), msgspec.msgpack.encode(report)))
            status, headers, body = parsed(read_to_end(asking))
        health = msgspec.json.decode(body)
        assert (status, headers["connection"]) == (200, "close")
        assert (health["status"], health["lemonbus"]["granted"]) == ("draining", 1)
        assert msgspec.json.decode(harness.get("/readyz")[2])["status"] == "draining"
        refused = harness.post("/v1/load", {"model": "tiny"})
        assert (refused[0], error_of(refused)["code"]) == (503, "draining"), "nothing is changed any more"
        harness.do(lambda: harness.publish(received, [*received.tokens(1, 2), received.done(2)]))
        assert parsed(seen + read_to_end(connection))[2].endswith(b"data: [DONE]\n\n")


def test_a_drained_server_lets_accepted_requests_end_and_a_list_get_its_later_pieces(tmp_path: Path) -> None:
    with running_gateway(tmp_path / "r") as harness, open_request(harness, LIST, LIST_PATH) as connection:
        first = harness.next_request()
        harness.do(lambda: harness.send(first.gateway, ServerReadiness(ready=True, drained=True)))
        wait_for(lambda: harness.get("/readyz")[0] == 503)
        refused = harness.post(PATH, CHAT)
        assert (refused[0], error_of(refused)["code"], refused[1]["retry-after"]) == (503, "drained", "10")
        harness.do(lambda: answer_whole(harness, first))
        later = harness.next_request()
        harness.do(lambda: answer_whole(harness, later))
        assert parsed(read_to_end(connection))[0] == 200


@pytest.mark.parametrize(
    "order", [peers.Draining(DEADLINE), peers.Shutdown(DEADLINE, "replaced")], ids=["draining", "replaced"]
)
def test_a_list_that_has_begun_gets_its_later_pieces(tmp_path: Path, order: msgspec.Struct) -> None:
    with running_gateway(tmp_path / "r") as harness, open_request(harness, LIST, LIST_PATH) as connection:
        first = harness.next_request()
        harness.do(lambda: harness.send(first.gateway, order))
        wait_for(lambda: harness.get("/health")[0] == 503)
        harness.do(lambda: answer_whole(harness, first))
        later = harness.next_request()
        assert later.message.earlier is not None
        assert (first.message.more, later.message.more) == (True, False)
        assert later.message.after == first.message.number
        harness.do(lambda: answer_whole(harness, later))
        status, _, body = parsed(read_to_end(connection))
        assert (status, len(msgspec.json.decode(body)["choices"])) == (200, 2)


def test_a_later_piece_that_no_supervisor_can_run_fails_with_the_tokens_before_it(tmp_path: Path) -> None:
    with (
        running_gateway(tmp_path / "r") as harness,
        open_request(harness, {**LIST, "stream": True}, LIST_PATH) as connection,
    ):
        first = harness.next_request()
        harness.do(lambda: harness.grant(first))
        harness.do(lambda: harness.publish(first, first.tokens(0, 1)))
        seen = read_until(connection, b"}\n\n")
        harness.listener.close()
        harness.end_keeper()
        wait_for(lambda: refused(harness.port))
        harness.do(lambda: harness.publish(first, [first.done(1)]))
        body = parsed(seen + read_to_end(connection))[2]
        error = msgspec.json.decode(body.rpartition(b"data: ")[2])["error"]
        assert (error["code"], error["model"], error["tokens_sent"]) == ("supervisor_lost", "tiny", 1)


def test_the_keepers_death_closes_the_listener_and_lets_streams_end(tmp_path: Path) -> None:
    with (
        running_gateway(tmp_path / "r") as harness,
        open_request(harness, CHAT) as waiting,
        open_request(harness) as running,
    ):
        arrived = [harness.next_request(), harness.next_request()]
        received = next(received for received in arrived if received.message.stream)
        harness.do(lambda: harness.grant(received))
        harness.do(lambda: harness.publish(received, received.tokens(0, 1)))
        seen = read_until(running, CHUNK % 0)
        harness.listener.close()
        harness.end_keeper()
        response = parsed(read_to_end(waiting))
        assert (response[0], error_of(response)["code"]) == (503, "supervisor_lost")
        assert response[1]["retry-after"]
        wait_for(lambda: refused(harness.port))
        harness.do(lambda: harness.publish(received, [*received.tokens(1, 2), received.done(2)]))
        assert parsed(seen + read_to_end(running))[2].endswith(b"data: [DONE]\n\n")
        assert harness.gateway is not None
        assert harness.gateway.wait(DEADLINE) == 0


def test_after_the_grace_streams_end_with_an_error(tmp_path: Path) -> None:
    with running_gateway(tmp_path / "r", grace=0.5) as harness, open_request(harness) as running:
        received = harness.next_request()
        harness.do(lambda: harness.grant(received))
        harness.do(lambda: harness.publish(received, received.tokens(0, 1)))
        seen = read_until(running, CHUNK % 0)
        harness.end_keeper()
        body = parsed(seen + read_to_end(running))[2]
        assert b"supervisor_lost" in body
        assert b"[DONE]" not in body
        assert harness.gateway is not None
        assert harness.gateway.wait(DEADLINE) == 0


def refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=DEADLINE).close()
    except ConnectionRefusedError:
        return True
    return False


def workers_of(harness: GatewayHarness) -> list[psutil.Process]:
    assert harness.gateway is not None
    return psutil.Process(harness.gateway.pid).children()


def test_a_gateway_that_the_supervisor_does_not_answer_ends_with_a_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    harness = GatewayHarness(tmp_path / "r", peer_silence=0.5)
    harness.welcoming = False
    try:
        harness.start()
        wait_for(lambda: len({hello.id for hello in harness.gateways}) >= 2)
    finally:
        harness.close()
    assert "the supervisor cannot be reached" in capfd.readouterr().err


def test_a_worker_process_that_ends_by_a_signal_is_replaced_and_its_requests_get_no_traceback(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with running_gateway(tmp_path / "r", grace=0.5) as harness:
        for count, how in enumerate((signal.SIGABRT, signal.SIGINT, signal.SIGKILL), 2):
            (worker,) = workers_of(harness)
            with contextlib.ExitStack() as stack:
                opened = [stack.enter_context(open_request(harness, CHAT)) for _ in range(20)]
                for _ in opened:
                    harness.next_request()
                worker.send_signal(how)
                answers = [read_to_end(connection) for connection in opened]
            assert not any(b" 500 " in answer for answer in answers), how
            worker.wait(DEADLINE)
            wait_for(lambda count=count: len({hello.id for hello in harness.gateways}) == count)  # type: ignore[misc]
            wait_for(lambda: harness.get("/live")[0] == 200)
    lines = capfd.readouterr().err.splitlines()
    assert lines
    for line in lines:
        assert "exception" not in msgspec.json.decode(line), line


def test_the_masters_death_breaks_streams_and_never_completes_them(tmp_path: Path) -> None:
    with running_gateway(tmp_path / "r") as harness, open_request(harness) as connection:
        received = harness.next_request()
        harness.do(lambda: harness.grant(received))
        harness.do(lambda: harness.publish(received, received.tokens(0, 1)))
        read_until(connection, CHUNK % 0)
        (worker,) = workers_of(harness)
        assert harness.gateway is not None
        harness.gateway.kill()
        rest = read_to_end(connection)
        assert b"[DONE]" not in rest
        assert not rest.endswith(b"0\r\n\r\n")
        worker.wait(DEADLINE)


def test_the_last_requests_are_reported_before_the_end(tmp_path: Path) -> None:
    with running_gateway(tmp_path / "r") as harness:
        assert harness.post(PATH, b"{")[0] == 400
        assert not harness.observed, "it is not asked"
        assert harness.gateway is not None
        harness.gateway.send_signal(signal.SIGTERM)
        assert harness.gateway.wait(DEADLINE) == 0
        failed = [each for report in wait_for(lambda: harness.observed) for each in report.failures]
    assert failed == [FailedRequests("", "", "invalid_json", 1)]
