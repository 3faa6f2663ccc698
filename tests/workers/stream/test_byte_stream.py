"""An engine's answer in bytes: what is passed on, and when it is whole."""

from __future__ import annotations

import pytest

from protocol.failures import Code, LemonbusError
from protocol.messages.work import BYTE_STREAMS, Run
from tests.workers.backend_stand_in import backend_stand_in
from workers.backends.engine_request import EngineRequest
from workers.backends.registry import DESCRIPTORS
from workers.requests.engine_answer import EngineAnswer

SOUND = bytes(range(256))


def answer(status: int = 200, **headers: bytes) -> EngineAnswer:
    backend = backend_stand_in(program="an-engine")
    times = iter(range(1000))
    (endpoint,) = BYTE_STREAMS
    found = EngineAnswer(Run("g", 1, 1, "m", endpoint, "r", stream=True), backend, lambda: float(next(times)))
    found.expect(EngineRequest("POST", "/v1/audio/speech", b"{}", streamed=True))
    found.began(status, {name.replace("_", "-").encode(): value for name, value in headers.items()})
    return found


def test_bytes_are_passed_on_unchanged_even_if_they_look_like_events() -> None:
    it = answer()
    for piece in (SOUND, b"data: [DONE]\n\n", b'{"error":"no"}', b"\xff"):
        filtered = it.feed(piece)
        assert (filtered.data, filtered.tokens) == (piece, 1)
        it.count(filtered.tokens)
    assert it.tokens_sent == 4
    assert it.finish(until_close=False) == b""


def test_its_cost_is_in_the_trailer() -> None:
    it = answer()
    it.count(it.feed(SOUND).tokens)
    it.note_trailer(b"x-usage", b'{"prompt_tokens":12,"completion_tokens":80}')
    it.note_trailer(b"x-other", b"{}")
    it.finish(until_close=False)
    outcome = it.outcome("m")
    assert (outcome.prompt_tokens, outcome.output_tokens, outcome.token_times) == (12, 80, b"")
    assert outcome.first_token_s > 0


UNREADABLE = [
    *(b"", b"no JSON", b"[]", b'{"prompt_tokens":"x"}', b"\xff"),
    *(b'{"prompt_tokens":-1}', b'{"completion_tokens":9000000000000000000}', b'{"completion_tokens":1e400}'),
]


@pytest.mark.parametrize("trailer", UNREADABLE)
def test_without_a_readable_trailer_its_pieces_are_counted(trailer: bytes) -> None:
    it = answer()
    it.count(it.feed(SOUND).tokens)
    it.note_trailer(b"x-usage", trailer)
    it.finish(until_close=False)
    assert (it.outcome("m").prompt_tokens, it.outcome("m").output_tokens) == (0, 1)


@pytest.mark.parametrize(("pieces", "until_close"), [([SOUND], True), ([], False), ([], True)])
def test_it_is_not_whole_if_only_the_connections_end_ended_it_or_without_a_byte(
    pieces: list[bytes], until_close: bool
) -> None:
    it = answer()
    for piece in pieces:
        it.feed(piece)
    with pytest.raises(LemonbusError) as caught:
        it.finish(until_close)
    assert caught.value.failure.code == Code.BACKEND_ERROR
    assert "ended its response early" in caught.value.failure.message


def test_an_error_of_the_engine_is_not_sound() -> None:
    it = answer(status=400)
    assert it.feed(b'{"error":{"message":"no such voice"}}').data == b""
    with pytest.raises(LemonbusError, match="no such voice"):
        it.finish(until_close=False)


ERROR = b'{\n "error": {"message": "no such voice", "type": "server_error", "code": 500}}'


@pytest.mark.parametrize("kind", [b"", b"audio/mpeg", b"application/octet-stream", b"application/json"])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_an_error_with_status_200_is_not_sound_whatever_its_type_and_its_pieces(kind: bytes, size: int) -> None:
    it = answer(content_type=kind)
    for begin in range(0, len(ERROR), size):
        assert it.feed(ERROR[begin : begin + size]).data == b""
    with pytest.raises(LemonbusError, match="no such voice"):
        it.finish(until_close=False)
    assert it.tokens_sent == 0


@pytest.mark.parametrize("kind", [b"text/html; charset=utf-8", b"application/problem+json", b"Application/JSON"])
def test_a_text_is_not_sound(kind: bytes) -> None:
    it = answer(content_type=kind)
    assert it.feed(b"<html>" + b"x" * 10_000_000).data == b""
    with pytest.raises(LemonbusError, match="answered with text") as caught:
        it.finish(until_close=False)
    assert len(caught.value.failure.detail) <= 300


@pytest.mark.parametrize(
    "sound", [b"{", b"  {", b"{}", b'{"erro', b'{"errors": 1}', b"{" + bytes(100), b"\n" * 64 + SOUND]
)
@pytest.mark.parametrize("size", [1, 1000])
def test_sound_that_begins_like_json_is_passed_on_whole(sound: bytes, size: int) -> None:
    it = answer(content_type=b"audio/pcm")
    pieces = b"".join(it.feed(sound[begin : begin + size]).data for begin in range(0, len(sound), size))
    assert pieces + it.finish(until_close=False) == sound


def test_compressed_sound_is_not_passed_on() -> None:
    it = answer(content_encoding=b"gzip")
    with pytest.raises(LemonbusError, match="compressed") as caught:
        it.feed(b"\x1f\x8b" + SOUND)
    assert "gzip" in caught.value.failure.detail
    assert answer(content_encoding=b"identity").feed(SOUND).data == SOUND


def test_an_answer_that_is_neither_one_nor_an_error_says_its_status() -> None:
    with pytest.raises(LemonbusError, match="answered with status 302"):
        answer(status=302).finish(until_close=False)


def test_a_recipe_serves_each_of_these_endpoints() -> None:
    served = {endpoint for each in DESCRIPTORS.values() for found in each.serves.values() for endpoint in found}
    assert served >= BYTE_STREAMS
