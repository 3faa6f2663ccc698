"""A real gateway process when things go wrong: deaths, gaps, hang-ups, refusals, slow readers."""

from __future__ import annotations

import contextlib
import queue
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest

from protocol.failures import Code, Failure
from protocol.messages import peers, work
from protocol.messages.events import EventKind
from protocol.messages.health import GetStats
from protocol.messages.models import GetModel
from tests.gateway.fake_supervisor import wait_for
from tests.gateway.fake_worker import CHUNK, ReceivedRequest
from tests.gateway.gateway_harness import GatewayHarness, running_gateway
from tests.gateway.process.chat_requests import CHAT, PATH, STREAM, error_of, open_request
from tests.gateway.raw_http import dechunked, parsed, read_to_end, read_until, request


def test_a_worker_that_dies_before_the_first_token_is_not_noticed(harness: GatewayHarness) -> None:
    harness.add_worker("w2")
    with open_request(harness) as connection:
        first = harness.next_request()
        harness.do(lambda: harness.grant(first))
        harness.kill_worker("w1", Failure(Code.WORKER_GONE, "killed"))
        again = harness.next_request()
        assert (again.message.number, again.message.attempt, again.message.suspect) == (first.message.number, 2, True)
        assert again.body == first.body
        harness.do(lambda: harness.grant(again, "w2"))
        harness.do(lambda: harness.publish(again, [*again.tokens(0, 2), again.done(2)], "w2"))
        body = parsed(read_to_end(connection))[2]
    assert body == CHUNK % 0 + CHUNK % 1 + b"data: [DONE]\n\n"
    harness.kill_worker("w2", Failure(Code.UNLOADED, "unloaded"))


def test_a_second_death_is_answered_with_its_status(harness: GatewayHarness) -> None:
    with open_request(harness) as connection:
        for seq in (1, 2):
            received = harness.next_request()
            assert received.message.attempt == seq
            failure = Failure(Code.BACKEND_DIED, "the backend was killed by SIGKILL")
            harness.do(lambda received=received: harness.grant(received))
            harness.do(
                lambda received=received, failure=failure: harness.publish(received, [received.failed(0, failure)])
            )
        error = error_of(parsed(read_to_end(connection)))
    assert (error["code"], error["model"]) == ("backend_died", "tiny")


def test_events_that_a_worker_sent_before_its_death_count(harness: GatewayHarness) -> None:
    harness.add_worker("w3")
    with open_request(harness) as connection:
        received = harness.next_request()
        harness.do(lambda: harness.grant(received, "w3"))
        harness.do(lambda: harness.publish(received, received.tokens(0, 1), "w3"))
        seen = read_until(connection, CHUNK % 0)

        def last_words() -> None:
            # The supervisor's news may overtake them: they travel on another socket.
            harness.publish(received, [*received.tokens(1, 2), received.done(2)], "w3")
            harness.send(received.gateway, peers.WorkerGone("w3", Failure(Code.WORKER_GONE, "killed")))

        harness.do(last_words)
        body = parsed(seen + read_to_end(connection))[2]
    assert body.endswith(CHUNK % 1 + b"data: [DONE]\n\n")


@pytest.mark.parametrize("how", ["event", "gone"])
def test_a_death_in_mid_stream_is_an_error_in_the_stream_and_no_end(harness: GatewayHarness, how: str) -> None:
    with open_request(harness, X_Request_ID="r.7") as connection:
        received = harness.next_request()
        harness.do(lambda: harness.grant(received))
        harness.do(lambda: harness.publish(received, received.tokens(0, 2)))
        seen = read_until(connection, CHUNK % 1)
        failure = Failure(Code.BACKEND_DIED, "the backend was killed by SIGKILL", detail="/secret/path")
        if how == "event":
            harness.do(lambda: harness.publish(received, [received.failed(2, failure)]))
        else:
            harness.kill_worker("w1", failure)
        status, _, body = parsed(seen + read_to_end(connection))
    assert status == 200
    assert b"[DONE]" not in body
    assert b"secret" not in body
    *_, last, _ = body.split(b"\n\n")
    error = msgspec.json.decode(last.removeprefix(b"data: "))["error"]
    assert (error["code"], error["model"], error["request_id"], error["tokens_sent"]) == (
        "backend_died",
        "tiny",
        "r.7",
        2,
    )


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_that_is_lost_with_its_worker_is_reported(harness: GatewayHarness, stream: bool) -> None:
    """The worker may have reported its end, which then counts no more."""
    workers = ["w4"] if stream else ["w4", "w5"]
    for worker in workers:
        harness.add_worker(worker)
    with open_request(harness, body={**CHAT, "stream": stream}) as connection:
        for worker in workers:
            received = harness.next_request()
            harness.do(lambda received=received, worker=worker: harness.grant(received, worker))
            if stream:
                harness.do(lambda received=received: harness.publish(received, received.tokens(0, 2), "w4"))
                read_until(connection, CHUNK % 1)
            harness.kill_worker(worker, Failure(Code.WORKER_GONE, "killed"))
        read_to_end(connection)
    while (lost := harness.called(work.AnswerLost)[1]).number != received.message.number:
        pass  # an earlier test's
    assert (lost.attempt, lost.tokens) == (len(workers), 2 if stream else 0)


def test_a_gap_ends_the_attempt_and_cancels_it(harness: GatewayHarness) -> None:
    with open_request(harness) as connection:
        received = harness.next_request()
        harness.do(lambda: harness.grant(received))
        harness.do(lambda: harness.publish(received, received.tokens(0, 1)))
        seen = read_until(connection, CHUNK % 0)
        harness.do(lambda: harness.publish(received, received.tokens(2, 3)))
        body = dechunked((seen + read_to_end(connection)).partition(b"\r\n\r\n")[2])
    assert b"events_lost" in body
    assert b"[DONE]" not in body
    assert harness.cancel_of(received).attempt == 1


@pytest.mark.parametrize("body", [STREAM, CHAT], ids=["stream", "whole"])
@pytest.mark.parametrize("when", ["waiting", "running"])
def test_a_client_that_hangs_up_cancels_at_once(harness: GatewayHarness, body: dict[str, Any], when: str) -> None:
    with open_request(harness, body):
        received = harness.next_request()
        if when == "running":
            harness.do(lambda: harness.grant(received))
    cancel = harness.cancel_of(received)
    assert (cancel.gateway, cancel.attempt) == (received.gateway, 1)


def test_a_hang_up_behind_a_pipelined_request_is_noticed_too(harness: GatewayHarness) -> None:
    with harness.connect() as connection:
        connection.sendall(request("POST", PATH, CHAT, Connection="keep-alive") + request("GET", "/live", b""))
        received = harness.next_request()
    assert harness.cancel_of(received)


def test_a_call_whose_client_hangs_up_is_forgotten(harness: GatewayHarness) -> None:
    with harness.connect() as connection:
        connection.sendall(request("GET", "/v1/stats", b""))
        _, call = harness.called(GetStats)
    harness.forgotten(call.number)


def test_a_call_is_answered_or_refused(harness: GatewayHarness) -> None:
    with harness.connect() as connection:
        connection.sendall(request("GET", "/v1/models/nothing", b""))
        gateway, call = harness.called(GetModel)
        failure = Failure(Code.MODEL_NOT_FOUND, "no such model", model="nothing")
        harness.do(lambda: harness.send(gateway, work.Refused(call.number, 0, failure)))
        response = parsed(read_to_end(connection))
    assert (response[0], error_of(response)["code"]) == (404, "model_not_found")
    assert harness.others.empty()


def test_a_refusal_has_its_status_and_retry_after(harness: GatewayHarness) -> None:
    def refuse(received: ReceivedRequest) -> None:
        failure = Failure(Code.OVERLOADED, "the queue is full", retry_after=2.2)
        harness.send(received.gateway, work.Refused(received.message.number, received.message.attempt, failure))

    harness.on_request = refuse
    response = harness.post(PATH, STREAM)
    assert (response[0], response[1]["retry-after"]) == (503, "3")
    assert error_of(response)["code"] == "overloaded"


def test_a_client_that_does_not_read_costs_only_itself(tmp_path: Path) -> None:
    with running_gateway(tmp_path / "r", inbox_bytes=200_000) as harness, harness.connect() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(request("POST", PATH, STREAM))
        received = harness.next_request()
        harness.do(lambda: harness.grant(received))
        seq = 0
        reported: list[str] = []

        def continues_until_cancelled() -> bool:
            nonlocal seq
            batch = [
                received.event(seq + more, EventKind.DELTA, b"data: " + b"x" * 10_000 + b"\n\n", 1)
                for more in range(20)
            ]
            harness.do(lambda batch=batch: harness.publish(received, batch))
            seq += 20
            with contextlib.suppress(queue.Empty):
                reported.append(harness.cancelled.get(timeout=0.02).reason)
            return bool(reported)

        wait_for(continues_until_cancelled)
        assert reported == ["client_too_slow"]
        assert harness.get("/live")[0] == 200
        assert not read_to_end(slow).endswith(b"0\r\n\r\n")
