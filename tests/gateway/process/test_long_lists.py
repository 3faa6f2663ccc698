"""A list that a gateway gives to its engine in pieces: one request, with one model."""

from __future__ import annotations

from tests.gateway.gateway_harness import GatewayHarness
from tests.gateway.process.chat_requests import answer_whole, open_request
from tests.gateway.raw_http import parsed, read_to_end


def test_all_pieces_of_a_list_that_names_no_model_get_the_same_one(harness: GatewayHarness) -> None:
    with open_request(harness, {"prompt": ["hi"] * 40}, "/v1/completions") as connection:
        first = harness.next_request()
        assert first.message.model == ""
        harness.do(lambda: answer_whole(harness, first))
        later = harness.next_request()
        assert later.message.model == "tiny", "another model may be the one that was used last"
        harness.do(lambda: answer_whole(harness, later))
        assert parsed(read_to_end(connection))[0] == 200
