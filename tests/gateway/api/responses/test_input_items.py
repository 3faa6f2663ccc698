"""The items of ``input`` as they are stored: each with its type, its id and its status."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.api.responses.input.input_items import chat_messages, read_items
from gateway.api.responses.item_ids import ResponseIds


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
