"""The items of ``input`` as they are stored: each with its type, its id and its status."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.api.responses.conversation import ResponseIds
from gateway.api.responses.input.input_items import chat_messages, read_items
from tests.gateway.app_client import AppClient
from tests.support.calls import count_calls


@pytest.mark.parametrize("empty", [{}, {"type": None}, {"type": ""}, {"type": None, "status": None}])
def test_an_item_without_a_type_is_stored_as_what_it_means(empty: dict[str, Any]) -> None:
    (item,) = read_items([{**empty, "role": "user", "content": "hi"}], [], ResponseIds())
    assert (item["type"], item["status"]) == ("message", "completed")
    (again,) = read_items([{"id": item["id"], **empty}], [item], ResponseIds())
    assert again == item
    assert chat_messages(None, [again]) == [{"role": "user", "content": "hi"}]


def test_a_status_that_was_given_stays() -> None:
    (item,) = read_items([{"role": "assistant", "content": "hi", "status": "incomplete"}], [], ResponseIds())
    assert item["status"] == "incomplete"


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/responses/input_tokens"])
def test_too_many_items_are_refused_before_they_are_read(ask: AppClient, path: str) -> None:
    items = [{"role": "user", "content": "hi"}] * 60_000
    answers = []
    body = {"model": "m", "input": items}
    assert count_calls(lambda: answers.append(ask("POST", path, body))) < 20_000
    assert answers[0].status_code == 400
    assert "60000 items; the limit is 8192" in answers[0].text
    assert not ask.bus.sent
