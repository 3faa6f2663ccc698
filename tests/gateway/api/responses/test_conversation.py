"""Ids: an item's id tells its response's."""

from __future__ import annotations

import pytest

from gateway.api.responses.conversation import ResponseIds, response_of


def test_an_items_id_tells_its_response() -> None:
    ids = ResponseIds()
    made = [ids(prefix) for prefix in ("msg", "fc", "rs", "msg")]
    assert len(set(made)) == 4
    assert {response_of(each) for each in made} == {ids("resp")}
    assert ResponseIds()("resp") != ids("resp")


@pytest.mark.parametrize("given", ["", "msg_1", "msg_" + "g" * 36, "msg_" + "0" * 37, "call", "MSG_" + "0" * 36])
def test_other_ids_tell_nothing(given: str) -> None:
    assert response_of(given) == ""
