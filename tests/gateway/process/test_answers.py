"""A real gateway process when things go well: streams, whole answers, kept connections, large bodies."""

from __future__ import annotations

import msgspec

from protocol import endpoints
from protocol.events import Kind
from tests.gateway.process.talk import ANSWER, CHAT, PATH, STREAM, opened, serve_whole
from tests.gateway.rawhttp import parsed, read_to_end, read_until, request
from tests.gateway.standin import StandIn, wait_for
from tests.gateway.standworker import CHUNK, Asked


def test_a_stream_is_written_as_it_comes_and_ends_with_done(house: StandIn) -> None:
    with opened(house) as connection:
        asked = house.next_ask()
        assert (asked.ask.model, asked.ask.endpoint, asked.ask.stream) == ("tiny", "chat/completions", True)
        assert msgspec.json.decode(asked.body) == STREAM
        house.do(lambda: house.grant(asked))
        house.do(lambda: house.publish(asked, asked.tokens(0, 1)))
        seen = read_until(connection, CHUNK % 0)
        assert b"text/event-stream" in seen
        house.do(lambda: house.publish(asked, [*asked.tokens(1, 3), asked.done(3)]))
        status, _, body = parsed(seen + read_to_end(connection))
    assert status == 200
    assert body == b"".join(CHUNK % seq for seq in range(3)) + b"data: [DONE]\n\n"


def test_a_whole_answer_comes_as_it_was_made(house: StandIn) -> None:
    house.on_ask = lambda asked: serve_whole(house, asked)
    status, headers, body = house.post(PATH, CHAT, X_Request_ID="mine.1")
    assert (status, body) == (200, ANSWER)
    assert headers["x-request-id"] == "mine.1"
    assert headers["content-length"] == str(len(ANSWER))


def test_all_four_prefixes_lead_to_it(house: StandIn) -> None:
    house.on_ask = lambda asked: serve_whole(house, asked)
    for prefix in ("/v1", "/api/v1", "/v0", "/api/v0"):
        assert house.post(f"{prefix}/chat/completions", CHAT)[2] == ANSWER


def test_completions_and_embeddings(house: StandIn) -> None:
    def serve(asked: Asked) -> None:
        house.grant(asked)
        house.publish(asked, [asked.event(0, Kind.DELTA, b'{"choices":[{"text":" yes","index":0}]}', 3), asked.done(1)])

    house.on_ask = serve
    assert msgspec.json.decode(house.post("/v1/completions", {"prompt": "say", "echo": True})[2])["text"] == "say yes"
    house.on_ask = house.asked.put
    with opened(house, {"input": ["a", "b", "c"]}, "/v1/embeddings"):
        asked = house.next_ask()
        assert (asked.ask.endpoint, asked.ask.weight, asked.ask.model) == ("embeddings", 3, "")


def test_two_requests_with_one_id_get_their_own_answers(house: StandIn) -> None:
    with opened(house, X_Request_ID="same") as one, opened(house, X_Request_ID="same") as two:
        asks = [house.next_ask(), house.next_ask()]
        for asked in reversed(asks):
            house.do(lambda asked=asked: house.grant(asked))
            text = b"data: %d\n\n" % asked.ask.number
            house.do(
                lambda asked=asked, text=text: house.publish(
                    asked, [asked.event(0, Kind.DELTA, text, 1), asked.done(1)]
                )
            )
        bodies = {parsed(read_to_end(connection))[2] for connection in (one, two)}
    assert bodies == {b"data: %d\n\ndata: [DONE]\n\n" % asked.ask.number for asked in asks}


def test_a_connection_is_kept_for_the_next_request(house: StandIn) -> None:
    house.on_ask = lambda asked: serve_whole(house, asked)
    with house.connect() as connection:
        for _ in range(3):
            connection.sendall(request("POST", PATH, CHAT, Connection="keep-alive"))
            read_until(connection, ANSWER)


def test_a_pipelined_request_is_no_hang_up(house: StandIn) -> None:
    with house.connect() as connection:
        connection.sendall(request("POST", PATH, CHAT, Connection="keep-alive") + request("POST", PATH, CHAT))
        for _ in range(2):
            asked = house.next_ask()
            house.do(lambda asked=asked: serve_whole(house, asked))
        assert read_to_end(connection).count(ANSWER) == 2


def test_a_large_body_travels_as_a_file_that_is_gone_afterwards(house: StandIn) -> None:
    large = {**CHAT, "padding": "x" * 5000}
    with opened(house, large) as connection:
        asked = house.next_ask()
        file = endpoints.spool(house.runtime) / asked.ask.spool
        assert asked.body == b""
        assert msgspec.json.decode(file.read_bytes()) == large
        assert file.stat().st_mode & 0o777 == 0o600
        house.do(lambda: serve_whole(house, asked))
        read_to_end(connection)
    wait_for(lambda: not file.exists())
