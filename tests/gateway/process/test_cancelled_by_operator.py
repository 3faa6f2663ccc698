"""A request that an operator cancels ends with an error that says so, in each form of an answer, and is not tried again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from protocol.failures import Code, Failure
from protocol.messages import work
from tests.gateway.fake_worker import ReceivedRequest
from tests.gateway.gateway_harness import GatewayHarness, running_gateway
from tests.gateway.process.chat_requests import CHAT, END_MARKS, STREAMS, open_request, stream_events
from tests.gateway.raw_http import parsed, read_to_end, read_until

CANCELLED = Failure(Code.OPERATOR_CANCELLED, "an operator cancelled this request")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayHarness]:
    with running_gateway(tmp_path_factory.mktemp("g") / "r") as harness:
        yield harness


@pytest.fixture
def harness(shared: GatewayHarness) -> GatewayHarness:
    shared.on_request = shared.received.put
    shared.forget()
    return shared


def cancel(harness: GatewayHarness, received: ReceivedRequest, attempt: int = 1) -> None:
    """Do what the supervisor does when an operator cancels a request."""
    refusal = work.Refused(received.message.number, attempt, CANCELLED)
    harness.do(lambda: harness.send(received.gateway, refusal))


def check(error: Any) -> None:
    """Check an error object, which some dialects write as a text beside a code."""
    text, code = (error, CANCELLED.code) if isinstance(error, str) else (error["message"], error.get("code"))
    assert text == CANCELLED.message
    assert code in (CANCELLED.code, None, 499)


@pytest.mark.parametrize("path", STREAMS)
def test_a_stream_ends_with_the_error_of_its_dialect(harness: GatewayHarness, path: str) -> None:
    with open_request(harness, {**STREAMS[path], "stream": True}, path) as connection:
        received = harness.next_request()
        harness.do(lambda: harness.grant(received))
        harness.do(lambda: harness.publish(received, stream_events(received, path)))
        seen = read_until(connection, b"\r\n\r\n")
        cancel(harness, received)
        status, _, body = parsed(seen + read_to_end(connection))
    assert isinstance(harness.cancel_of(received), work.Cancel), "its engine stops"
    assert status == 200
    last = body.strip().splitlines()[-1]
    assert CANCELLED.message.encode() in last
    assert not any(mark in body for mark in END_MARKS)
    data = json.loads(last.removeprefix(b"data: "))
    check(data["response"]["error"] if "response" in data else data.get("error", data))


@pytest.mark.parametrize("granted", [True, False], ids=["running", "waiting"])
@pytest.mark.parametrize("path", STREAMS)
def test_a_whole_answer_is_499(harness: GatewayHarness, path: str, granted: bool) -> None:
    with open_request(harness, {**STREAMS[path], "stream": False}, path) as connection:
        received = harness.next_request()
        if granted:
            harness.do(lambda: harness.grant(received))
        cancel(harness, received)
        status, headers, body = parsed(read_to_end(connection))
    assert isinstance(harness.cancel_of(received), work.Cancel)
    assert status == 499
    assert headers["x-should-retry"] == "false"
    check(json.loads(body)["error"])


def test_a_request_that_is_being_tried_again_is_cancelled_whatever_attempt_the_supervisor_saw(
    harness: GatewayHarness,
) -> None:
    with open_request(harness, CHAT) as connection:
        received = harness.next_request()
        died = work.Refused(received.message.number, 1, Failure(Code.RETURNED, "its worker is gone"))
        harness.do(lambda: harness.send(received.gateway, died))
        again = harness.next_request()
        assert again.message.attempt == 2
        cancel(harness, again, attempt=1)
        status, _, body = parsed(read_to_end(connection))
    assert status == 499
    check(json.loads(body)["error"])
