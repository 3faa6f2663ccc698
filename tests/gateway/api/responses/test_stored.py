"""The stored form of a response, the API key that it is stored for, and the form that clients see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.api.responses import stored_form
from protocol.config.api_keys import digest
from protocol.failures import Code, Failure
from protocol.messages.calls import AbandonCall
from protocol.messages.responses import (
    CancelResponse,
    DeleteResponse,
    FinishResponse,
    GetResponse,
    ResponseState,
    StoredResponse,
    StoredTurn,
    StoreResponse,
)
from protocol.messages.work import ReserveRequest
from tests.gateway.api.error_bodies import is_error
from tests.gateway.app_client import AppClient, StreamedAnswer

HI: dict[str, Any] = {"model": "m", "input": "hi"}
ANSWER = {"choices": [{"message": {"role": "assistant", "content": "Hello"}}]}
CHUNK = {"choices": [{"delta": {"content": "Hello"}, "finish_reason": "stop"}]}
EARLIER = StoredTurn(
    msgspec.json.encode([{"type": "message", "id": "i1", "role": "user", "content": "One?"}]),
    msgspec.json.encode(
        {
            "id": "r",
            "status": "completed",
            "background": False,
            "output": [{"type": "message", "id": "o1", "role": "assistant", "content": "One."}],
        }
    ),
)


def stored(state: ResponseState = ResponseState.ENDED, turn: StoredTurn = EARLIER) -> StoredResponse:
    return StoredResponse(state, [turn])


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_is_stored_before_its_end_is_written(ask: AppClient, stream: bool) -> None:
    ask.answers["chat/completions"] = StreamedAnswer([CHUNK]) if stream else ANSWER
    ask.reports[StoreResponse] = None
    result = ask("POST", "/v1/responses", {**HI, "stream": stream})
    (message,) = ask.asked(StoreResponse)
    response = _response(result, stream)
    assert (message.id, message.previous, message.running) == (response["id"], "", False)
    assert (response["status"], response["store"]) == ("completed", True)


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_that_cannot_be_stored_is_answered_and_says_so(ask: AppClient, stream: bool) -> None:
    ask.answers["chat/completions"] = StreamedAnswer([CHUNK]) if stream else ANSWER
    ask.reports[StoreResponse] = Failure(Code.TOO_LARGE, "too large")
    response = _response(ask("POST", "/v1/responses", {**HI, "stream": stream}), stream)
    assert (response["status"], response["store"]) == ("completed", False)


def _response(result: Any, stream: bool) -> Any:
    if not stream:
        return result.json
    last = result.text.rstrip().split("\n\n")[-1]
    return msgspec.json.decode(last.partition("data: ")[2])["response"]


def test_a_response_is_not_stored_if_the_request_says_so(ask: AppClient) -> None:
    ask.answers["chat/completions"] = ANSWER
    assert ask("POST", "/v1/responses", {**HI, "store": False}).json["store"] is False
    assert not ask.asked(StoreResponse)


def test_a_conversation_goes_on(ask: AppClient) -> None:
    ask.answers["chat/completions"] = ANSWER
    ask.reports.update({GetResponse: stored(), StoreResponse: None})
    reference = {"type": "item_reference", "id": "o1"}
    body = {"model": "m", "input": [reference, {"role": "user", "content": "Two?"}], "previous_response_id": "r"}
    assert ask("POST", "/v1/responses", body).status_code == 200
    sent = msgspec.json.decode(ask.bus.bodies[0])["messages"]
    assert [(each["role"], each["content"]) for each in sent] == [
        ("user", "One?"),
        ("assistant", "One."),
        ("assistant", "One."),
        ("user", "Two?"),
    ]
    (message,) = ask.asked(StoreResponse)
    assert message.previous == "r"


def test_an_item_is_referred_to_only_once(ask: AppClient) -> None:
    ask.reports[GetResponse] = stored()
    body = {"model": "m", "input": [{"type": "item_reference", "id": "o1"}, {"id": "o1"}], "previous_response_id": "r"}
    is_error(ask("POST", "/v1/responses", body), 400, "invalid_request", "input[1]")
    assert not ask.bus.bodies


@pytest.mark.parametrize("state", [ResponseState.RUNNING, ResponseState.CANCELLED, ResponseState.LOST])
def test_a_response_without_an_end_is_not_continued(ask: AppClient, state: ResponseState) -> None:
    running = StoredTurn(EARLIER.input, EARLIER.response.replace(b"completed", b"in_progress"))
    ask.reports[GetResponse] = stored(state, running)
    answer = ask("POST", "/v1/responses", {**HI, "previous_response_id": "r"})
    is_error(answer, 400, "invalid_request", "previous_response_id")
    assert not ask.bus.bodies


def test_the_store_knows_the_api_key(tmp_path: Path) -> None:
    ask = AppClient(tmp_path, api_key="secret")
    ask.answers["chat/completions"] = ANSWER
    ask.reports.update({StoreResponse: None, GetResponse: stored(), CancelResponse: stored(), DeleteResponse: None})
    key = {"headers": {"Authorization": "Bearer secret"}}
    ask("POST", "/v1/responses", HI, **key)
    ask("GET", "/v1/responses/r", **key)
    ask("GET", "/v1/responses/r/input_items", **key)
    ask("POST", "/v1/responses/r/cancel", **key)
    ask("DELETE", "/v1/responses/r", **key)
    kinds = (StoreResponse, GetResponse, CancelResponse, DeleteResponse)
    owners = [message.key for kind in kinds for message in ask.asked(kind)]
    assert owners == [digest("secret")] * 5, "a later key of the same name is another one"
    assert ask("GET", "/v1/responses/r").status_code == 401


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (ResponseState.ENDED, "completed"),
        (ResponseState.RUNNING, "completed"),
        (ResponseState.CANCELLED, "cancelled"),
        (ResponseState.LOST, "failed"),
    ],
)
def test_the_state_is_shown(state: ResponseState, status: str) -> None:
    assert stored_form.shown(stored(state))["status"] == status


def test_only_responses_in_the_background_are_cancelled(ask: AppClient) -> None:
    ask.reports[CancelResponse] = stored()
    is_error(ask("POST", "/v1/responses/r/cancel"), 400, "invalid_request", "response_id")


def test_a_background_that_cannot_be_stored_is_not_begun(ask: AppClient) -> None:
    ask.reports[ReserveRequest] = None
    ask.reports[StoreResponse] = Failure(Code.OVERLOADED, "full", retry_after=1)
    answer = ask("POST", "/v1/responses", {**HI, "background": True})
    is_error(answer, 503, "overloaded")
    assert not ask.bus.bodies
    assert not ask.asked(FinishResponse)
    assert ask.asked(ReserveRequest)[0].number in [call.number for call in ask.asked(AbandonCall)]


@pytest.mark.parametrize("stream", [False, True])
def test_a_background_that_would_be_refused_is_refused_at_once(ask: AppClient, stream: bool) -> None:
    ask.reports[ReserveRequest] = Failure(Code.MODEL_NOT_FOUND, "Model not found: m", model="m")
    answer = ask("POST", "/v1/responses", {**HI, "background": True, "stream": stream})
    is_error(answer, 404, "not_found")
    assert not ask.asked(StoreResponse)
    assert not ask.bus.bodies


ITEMS = [{"id": name} for name in "abcde"]


@pytest.mark.parametrize(
    ("order", "limit", "after", "ids", "more"),
    [
        ("asc", 20, "", "abcde", False),
        ("desc", 20, "", "edcba", False),
        ("asc", 2, "", "ab", True),
        ("asc", 2, "b", "cd", True),
        ("asc", 2, "d", "e", False),
        ("desc", 5, "b", "a", False),
        ("asc", 5, "e", "", False),
    ],
)
def test_pages(order: str, limit: int, after: str, ids: str, more: bool) -> None:
    page = stored_form.page(ITEMS, order, limit, after)
    assert "".join(item["id"] for item in page.data) == ids
    assert page.has_more is more
    assert (page.first_id, page.last_id) == ((ids[0], ids[-1]) if ids else (None, None))
