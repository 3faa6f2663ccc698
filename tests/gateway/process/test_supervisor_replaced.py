"""A real gateway process whose supervisor is killed and replaced: its clients notice nothing."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.api.common.health_reports import ANSWER_WAIT_S
from protocol.messages.calls import CallResult
from protocol.messages.events import EventKind
from protocol.messages.health import GetHealth, HealthReport
from protocol.messages.model_files import DeleteModel
from protocol.messages.models import Loaded, LoadModel
from protocol.messages.recovery import Recovered
from tests.gateway.fake_supervisor import wait_for
from tests.gateway.fake_worker import CHUNK, DEADLINE, ReceivedRequest
from tests.gateway.gateway_harness import GatewayHarness, running_gateway
from tests.gateway.process.chat_requests import CHAT, PATH, error_of, open_request
from tests.gateway.raw_http import parsed, read_to_end, read_until, request

SPOOLED = 5000
"""Bytes of a body that is too large for the bus in these tests."""


@pytest.fixture(scope="module")
def module_harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayHarness]:
    with running_gateway(tmp_path_factory.mktemp("g") / "r", spool_over=SPOOLED) as harness:
        yield harness


@pytest.fixture
def harness(module_harness: GatewayHarness) -> GatewayHarness:
    module_harness.welcoming = True
    module_harness.forget()
    return module_harness


def recovering(harness: GatewayHarness) -> None:
    """Wait until the gateway has noticed that its supervisor is dead."""
    wait_for(lambda: msgspec.json.decode(harness.get("/health")[2])["status"] == "recovering")


def answer(harness: GatewayHarness, received: ReceivedRequest, text: bytes = b"{}") -> None:
    """Grant a request that is not streamed, and answer it."""
    harness.do(lambda: harness.grant(received))
    harness.do(lambda: harness.publish(received, [received.event(0, EventKind.DELTA, text), received.done(1)]))


def test_a_running_stream_goes_on_and_what_waits_is_asked_again_in_its_order(harness: GatewayHarness) -> None:
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(open_request(harness))
        streamed = harness.next_request()
        harness.do(lambda: harness.grant(streamed))
        harness.do(lambda: harness.publish(streamed, streamed.tokens(0, 1)))
        seen = read_until(running, CHUNK % 0)
        waiting = []
        for _ in range(4):
            waiting.append(stack.enter_context(open_request(harness, CHAT)))
            harness.next_request()
        harness.end_supervisor()
        harness.do(lambda: harness.publish(streamed, streamed.tokens(1, 2)))
        seen += read_until(running, CHUNK % 1)
        recovering(harness)
        waiting.append(stack.enter_context(open_request(harness, CHAT)))
        harness.start_supervisor()
        known = harness.snapshots.get(timeout=DEADLINE).requests
        asked = [harness.next_request() for _ in waiting]
        assert [each.worker for each in known] == ["w1", "", "", "", "", ""][: len(known)]
        assert known[0].number == streamed.message.number
        numbers = [each.message.number for each in asked]
        assert numbers == sorted(numbers)
        # Each age is taken when its message is sent, so the ages of requests that came close together need not fall.
        assert asked[0].message.age > asked[-1].message.age > 0
        assert {each.body for each in asked} == {asked[0].body}
        for received in asked:
            answer(harness, received)
        for connection in waiting:
            assert parsed(read_to_end(connection))[0] == 200
        harness.do(lambda: harness.publish(streamed, [*streamed.tokens(2, 3), streamed.done(3)]))
        body = parsed(seen + read_to_end(running))[2]
        assert [CHUNK % n in body for n in range(3)] == [True] * 3
        assert body.endswith(b"data: [DONE]\n\n")


def test_probes_and_health_answer_while_there_is_no_supervisor(harness: GatewayHarness) -> None:
    report = HealthReport("ok", "1", "b1", harness.supervisor.pid, 5.0, [], {})
    answers: list[tuple[int, dict[str, str], bytes]] = []
    thread = threading.Thread(target=lambda: answers.append(harness.get("/v1/health")))
    thread.start()
    gateway, call = harness.called(GetHealth)
    payload = msgspec.msgpack.encode(report)
    harness.do(lambda: harness.send(gateway, CallResult(call.number), payload))
    thread.join(DEADLINE)
    assert msgspec.json.decode(answers[0][2])["status"] == "ok"
    harness.end_supervisor()
    recovering(harness)
    began = time.monotonic()
    assert harness.get("/live")[0] == 200
    status, _, body = harness.get("/v1/health")
    health = msgspec.json.decode(body)
    assert (status, health["status"], health["lemonbus"]["state"]) == (200, "recovering", "recovering")
    assert health["lemonbus"]["pid"] == report.pid
    assert "the supervisor does not answer" in health["lemonbus"]["problems"][0]
    assert msgspec.json.decode(harness.get("/status")[2])["status"] == "recovering"
    assert time.monotonic() - began < ANSWER_WAIT_S, "none of them has waited for a supervisor"
    harness.start_supervisor()
    wait_for(lambda: msgspec.json.decode(harness.get("/health")[2])["status"] == "ok")


def test_a_thousand_requests_wait_and_keep_their_order(harness: GatewayHarness) -> None:
    count = 1000
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(open_request(harness, CHAT)) for _ in range(count // 2)]
        before = [harness.next_request() for _ in connections]
        harness.end_supervisor()
        recovering(harness)
        connections += [stack.enter_context(open_request(harness, CHAT)) for _ in range(count // 2)]
        wait_for(lambda: harness.get("/live")[0] == 200)
        harness.start_supervisor()
        asked = [harness.next_request() for _ in connections]
        numbers = [each.message.number for each in asked]
        assert numbers == sorted(numbers)
        assert numbers[: len(before)] == [each.message.number for each in before]
        for received in asked:
            answer(harness, received)
        assert {parsed(read_to_end(connection))[0] for connection in connections} == {200}


def test_a_client_that_hangs_up_meanwhile_is_forgotten(harness: GatewayHarness) -> None:
    with open_request(harness, CHAT) as stays:
        kept = harness.next_request()
        with open_request(harness, CHAT):
            left = harness.next_request()
            harness.end_supervisor()
            recovering(harness)
        wait_for(lambda: any(line.get("status") == 499 for line in harness.lines))
        harness.start_supervisor()
        numbers = [each.number for each in harness.snapshots.get(timeout=DEADLINE).requests]
        asked = harness.next_request()
        assert asked.message.number == kept.message.number
        # Its snapshot may be older: then a Cancel follows.
        if left.message.number in numbers:
            assert harness.cancel_of(left)
        answer(harness, asked)
        assert parsed(read_to_end(stays))[0] == 200


def test_a_spooled_body_stays_for_the_next_supervisor(harness: GatewayHarness) -> None:
    large = {**CHAT, "messages": [{"role": "user", "content": "x" * 2 * SPOOLED}]}
    with open_request(harness, large) as connection:
        first = harness.next_request()
        assert first.message.spool
        harness.replace_supervisor()
        again = harness.next_request()
        assert again.message.spool == first.message.spool
        assert (harness.runtime / "spool" / again.message.spool).stat().st_size > 2 * SPOOLED
        answer(harness, again)
        assert parsed(read_to_end(connection))[0] == 200


def test_two_deaths_in_a_row_and_one_before_the_welcome(harness: GatewayHarness) -> None:
    with open_request(harness, CHAT) as connection:
        first = harness.next_request()
        for welcoming in (True, False, True):
            harness.welcoming = welcoming
            harness.replace_supervisor()
            again = harness.next_request()
            assert (again.message.number, again.body) == (first.message.number, first.body)
        answer(harness, again)
        assert parsed(read_to_end(connection))[0] == 200


def test_calls_are_repeated_or_say_that_their_outcome_is_unknown(harness: GatewayHarness) -> None:
    answers: dict[str, Any] = {}

    def post(path: str, body: dict[str, str]) -> None:
        answers[path] = harness.post(path, body)

    asked = [("/v1/load", {"model_name": "tiny"}), ("/v1/delete", {"model_name": "tiny"})]
    threads = [threading.Thread(target=post, args=each) for each in asked]
    for thread in threads:
        thread.start()
    wait_for(lambda: {LoadModel, DeleteModel} <= {type(message) for _, message in list(harness.others.queue)})
    while not harness.others.empty():
        harness.others.get()
    harness.replace_supervisor()
    gateway, load = harness.called(LoadModel)
    loaded = msgspec.msgpack.encode(Loaded("tiny", "o/r:v", "llamacpp"))
    harness.do(lambda: harness.send(gateway, CallResult(load.number), loaded))
    for thread in threads:
        thread.join(DEADLINE)
    assert answers["/v1/load"][0] == 200
    assert (answers["/v1/delete"][0], error_of(answers["/v1/delete"])["code"]) == (503, "outcome_unknown")


def test_a_worker_that_died_meanwhile_is_settled_when_the_supervisor_has_recovered(harness: GatewayHarness) -> None:
    harness.add_worker("w7")
    with open_request(harness) as begun, open_request(harness, CHAT) as silent:
        arrived = [harness.next_request(), harness.next_request()]
        streamed = next(each for each in arrived if each.message.stream)
        for received in arrived:
            harness.do(lambda received=received: harness.grant(received, "w7"))
        harness.ping()  # both grants have arrived: events, which another socket brings, may overtake them
        harness.do(lambda: harness.publish(streamed, streamed.tokens(0, 1), "w7"))
        seen = read_until(begun, CHUNK % 0)
        harness.end_supervisor()
        harness.do(lambda: harness.workers.pop("w7").close())
        recovering(harness)
        harness.start_supervisor()
        harness.snapshots.get(timeout=DEADLINE)
        harness.do(lambda: harness.send(streamed.gateway, Recovered(list(harness.workers))))
        assert b"worker_gone" in parsed(seen + read_to_end(begun))[2]
        again = harness.next_request()
        assert (again.message.attempt, again.message.retry_reason) == (2, "worker_gone")
        answer(harness, again)
        assert parsed(read_to_end(silent))[0] == 200


def test_the_keeper_dies_while_there_is_no_supervisor(tmp_path: Path) -> None:
    with (
        running_gateway(tmp_path / "r") as harness,
        open_request(harness, CHAT) as waiting,
        open_request(harness) as running,
    ):
        arrived = [harness.next_request(), harness.next_request()]
        streamed = next(received for received in arrived if received.message.stream)
        harness.do(lambda: harness.grant(streamed))
        harness.do(lambda: harness.publish(streamed, streamed.tokens(0, 1)))
        seen = read_until(running, CHUNK % 0)
        harness.end_supervisor()
        recovering(harness)
        harness.end_keeper()
        response = parsed(read_to_end(waiting))
        assert (response[0], error_of(response)["code"]) == (503, "supervisor_lost")
        harness.do(lambda: harness.publish(streamed, [*streamed.tokens(1, 2), streamed.done(2)]))
        assert parsed(seen + read_to_end(running))[2].endswith(b"data: [DONE]\n\n")
        assert harness.gateway is not None
        assert harness.gateway.wait(DEADLINE) == 0


def test_a_gateway_that_starts_without_a_supervisor_lets_its_clients_wait(tmp_path: Path) -> None:
    harness = GatewayHarness(tmp_path / "r")
    harness.end_supervisor()
    try:
        harness.launch()
        wait_for(lambda: harness.get("/live")[0] == 200)
        status, _, body = harness.get("/health")
        assert (status, msgspec.json.decode(body)["error"]["code"]) == (503, "starting")
        with harness.connect() as connection:
            connection.sendall(request("POST", PATH, CHAT))
            wait_for(lambda: harness.get("/live")[0] == 200)
            harness.start_supervisor()
            answer(harness, harness.next_request())
            assert parsed(read_to_end(connection))[0] == 200
    finally:
        harness.close()
