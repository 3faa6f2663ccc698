"""A real gateway process and slow answers: what is sent ahead of them, and how they end."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import msgspec
import pytest

from protocol.failures import Code, Failure
from protocol.messages.events import EventKind
from protocol.wire import form_data
from protocol.wire.form_data import FormPart
from protocol.wire.transcripts import Transcript, TranscriptSegment
from tests.gateway.fake_worker import ReceivedRequest
from tests.gateway.gateway_harness import GatewayHarness, running_gateway
from tests.gateway.raw_http import parsed, read_to_end, read_until, request

SOON = 0.3
"""Seconds after which the head is sent, and between paddings."""
IMAGES, AUDIO = "/v1/images/generations", "/v1/audio/transcriptions"
PICTURE = b'{"created":1,"data":[{"b64_json":"AAAA"}]}'
TRANSCRIPT = Transcript(text="hello", duration=2.0, segments=[TranscriptSegment(0, 0.0, 1.5, " hello")])
FAILED = Failure(Code.BACKEND_ERROR, "it broke")


@pytest.fixture(scope="module")
def padding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayHarness]:
    with running_gateway(tmp_path_factory.mktemp("late") / "r", answer_silence=SOON, header_silence=SOON) as harness:
        yield harness


def start_picture(harness: GatewayHarness) -> tuple[socket.socket, ReceivedRequest]:
    connection = harness.connect()
    connection.sendall(request("POST", IMAGES, {"prompt": "a cat"}))
    received = harness.next_request()
    harness.do(lambda: harness.grant(received))
    return connection, received


def transcribe(harness: GatewayHarness, form: str) -> tuple[socket.socket, ReceivedRequest]:
    body = form_data.encode(
        [FormPart("model", b"m"), FormPart("response_format", form.encode()), FormPart("file", b"OggS", "a.ogg")]
    )
    kind = f"{form_data.MEDIA_TYPE}; boundary={form_data.boundary_from_body(body)}"
    connection = harness.connect()
    connection.sendall(request("POST", AUDIO, body, Content_Type=kind))
    received = harness.next_request()
    harness.do(lambda: harness.grant(received))
    return connection, received


def answer(harness: GatewayHarness, received: ReceivedRequest, body: bytes) -> None:
    harness.do(lambda: harness.publish(received, [received.event(0, EventKind.DELTA, body, 0), received.done(1)]))


def fail(harness: GatewayHarness, received: ReceivedRequest) -> None:
    harness.do(lambda: harness.publish(received, [received.event(0, EventKind.FAILED, msgspec.msgpack.encode(FAILED))]))


def test_whitespace_goes_ahead_of_a_late_picture(padding: GatewayHarness) -> None:
    connection, received = start_picture(padding)
    with connection:
        begun = read_until(connection, b"1\r\n \r\n1\r\n \r\n")
        assert b"200 OK" in begun
        assert b"x-accel-buffering: no" in begun.lower()
        answer(padding, received, PICTURE)
        status, headers, body = parsed(begun + read_to_end(connection))
    assert (status, headers["content-type"]) == (200, "application/json")
    assert body.startswith(b"  ")
    assert json.loads(body)["data"][0]["b64_json"] == "AAAA"


def test_a_picture_that_is_there_soon_has_no_padding_and_a_length(harness: GatewayHarness) -> None:
    connection, received = start_picture(harness)
    with connection:
        answer(harness, received, PICTURE)
        _, headers, body = parsed(read_to_end(connection))
    assert body.startswith(b"{")
    assert int(headers["content-length"]) == len(body)


def test_an_error_after_the_head_is_told_in_the_body_with_its_status(padding: GatewayHarness) -> None:
    connection, received = start_picture(padding)
    with connection:
        begun = read_until(connection, b"1\r\n \r\n")
        fail(padding, received)
        status, headers, body = parsed(begun + read_to_end(connection))
    document = json.loads(body)
    assert (status, document["status"], document["message"]) == (200, "error", "it broke")
    assert (document["error"]["code"], document["error"]["status_code"]) == ("backend_error", 500)
    assert document["error"]["request_id"] == headers["x-request-id"]


def test_sound_has_no_head_before_its_first_byte_so_a_late_error_is_a_status(padding: GatewayHarness) -> None:
    connection = padding.connect()
    with connection:
        connection.sendall(request("POST", "/v1/audio/speech", {"input": "Hello", "voice": "af_heart"}))
        received = padding.next_request()
        padding.do(lambda: padding.grant(received))
        connection.settimeout(4 * SOON)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.settimeout(20)
        fail(padding, received)
        status, _, body = parsed(read_to_end(connection))
    assert (status, json.loads(body)["error"]["code"]) == (500, "backend_error")


def test_an_error_before_the_head_is_a_status(harness: GatewayHarness) -> None:
    connection, received = start_picture(harness)
    with connection:
        fail(harness, received)
        assert parsed(read_to_end(connection))[0] == 500


def test_an_answer_that_is_not_a_picture_is_also_an_error_there(padding: GatewayHarness) -> None:
    connection, received = start_picture(padding)
    with connection:
        begun = read_until(connection, b"1\r\n \r\n")
        answer(padding, received, b"{}")
        assert json.loads(parsed(begun + read_to_end(connection))[2])["error"]["code"] == "backend_error"


@pytest.mark.parametrize(
    ("form", "ahead", "whole"),
    [
        ("json", b" ", b'{"text":"hello","usage":{"type":"duration","seconds":2}}'),
        ("text", b"\n", b"hello\n"),
        ("srt", b"\n", b"1\n00:00:00,000 --> 00:00:01,500\nhello\n\n"),
        ("vtt", b"WEBVTT\n\n", b"00:00:00.000 --> 00:00:01.500\nhello\n\n"),
    ],
)
def test_what_goes_ahead_of_a_transcript_changes_nothing_in_it(
    padding: GatewayHarness, form: str, ahead: bytes, whole: bytes
) -> None:
    connection, received = transcribe(padding, form)
    with connection:
        begun = read_until(connection, ahead + b"\r\n")
        begun += read_until(connection, b"\r\n")
        answer(padding, received, msgspec.json.encode(TRANSCRIPT))
        status, _, body = parsed(begun + read_to_end(connection))
    assert status == 200
    assert body.startswith(ahead)
    assert body.endswith(whole)
    between = body[len(ahead) : -len(whole)]
    comments = between.replace(b"NOTE still working\n\n", b"") if form == "vtt" else between
    assert not comments.strip()


@pytest.mark.parametrize("form", ["text", "srt", "vtt"])
def test_what_cannot_tell_an_error_is_cut_off(padding: GatewayHarness, form: str) -> None:
    connection, received = transcribe(padding, form)
    with connection:
        begun = read_until(connection, b"\n\r\n")
        fail(padding, received)
        rest = read_to_end(connection)
    assert not (begun + rest).endswith(b"0\r\n\r\n"), "its end would say that it is whole"


def test_a_client_that_hangs_up_meanwhile_is_noticed(padding: GatewayHarness) -> None:
    connection, received = start_picture(padding)
    read_until(connection, b"1\r\n \r\n")
    connection.close()
    assert padding.cancel_of(received)
